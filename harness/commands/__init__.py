"""The commands that work on captures, shares and load, each in a module."""
