"""Benches of a part alone, each in a process whose processor time and memory it reads."""
