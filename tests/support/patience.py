"""How long tests wait for what must come: long, for machines that are busy or stand still."""

PATIENCE_S = 60.0
"""Seconds. Nothing that works ever waits so long; what does not work fails after them."""
