"""Who serves a request: assignment, one stream out of two runs, pauses and shadows."""
