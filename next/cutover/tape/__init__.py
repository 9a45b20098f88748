"""Stub."""
import time
from cutover.tape.effect import effect as effect
def at_end(callback: object) -> None:
    """Stub."""
def moment() -> float:
    """Stub."""
    return time.monotonic()
