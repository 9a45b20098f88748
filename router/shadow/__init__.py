"""Shadows: the stack that does not serve runs on the tape of the one that does."""
