"""The new stack: the same files as the old one, driven by the graph engine."""
