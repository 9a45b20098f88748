"""Stub."""
from cutover.tape.effect import effect as effect
