"""Two services of one's own: what they speak, a configuration for them, and what works in it."""
