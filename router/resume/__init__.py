"""Resuming: an exchange paused for a human goes on, claimed by one router at a time."""
