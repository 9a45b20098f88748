"""Streams as events: frames read through a dialect, scanned quickly, aligned."""
