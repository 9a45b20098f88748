"""Serving HTTP: the server, its connections, its workers, its end, its log."""
