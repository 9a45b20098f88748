"""Serving: one stack runs for a request, and another takes over when it fails."""
