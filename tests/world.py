"""A world made of the public fakes: the self-test's own."""

from cutover.selftest.world import (
    Counted,
    World,
)

__all__ = [
    "Counted",
    "World",
]
