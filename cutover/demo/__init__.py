"""The demonstration: the whole story on one machine, no key needed."""
