"""Capture: exchanges recorded, redacted and written to segments."""
