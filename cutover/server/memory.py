"""Large pieces of memory: given back to the system as soon as nobody holds them."""

from __future__ import annotations

import ctypes
import os
from typing import Final

LARGE: Final = 1_048_576
_M_MMAP_THRESHOLD: Final = -3
_OWN: Final = ("MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Variables by which somebody has decided otherwise."""


def give_back() -> bool:
    """Have glibc map pieces of a MiB and more by themselves; False where that cannot be.

    Left alone it keeps what it has mapped once, up to 32 MiB each, among all that is small: bodies
    with pictures took five times the memory they were allowed, and stayed.
    """
    if any(name in os.environ for name in _OWN):
        return False
    choose = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's alone
    return choose is not None and bool(choose(_M_MMAP_THRESHOLD, LARGE))
