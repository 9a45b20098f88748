"""Pauses: exchanges that wait for a human, how they move, and where they are stored."""
