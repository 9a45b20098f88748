"""An event loop whose clock jumps: the self-test's own."""

from cutover.selftest.virtual_time import (
    GUARD_SECONDS,
    JumpingSelector,
    NothingLeftToWaitFor,
    VirtualLoop,
)

__all__ = [
    "GUARD_SECONDS",
    "JumpingSelector",
    "NothingLeftToWaitFor",
    "VirtualLoop",
]
