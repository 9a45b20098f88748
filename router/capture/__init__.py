"""Capture: finished exchanges are recorded, redacted and stored as compressed segments."""
