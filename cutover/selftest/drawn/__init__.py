"""Drawn faults: a grammar of them, the changes it draws, and how they get into running code."""
