"""Faults put into one stack on purpose: the self-test's own."""

from cutover.selftest.seeded import (
    FAULTS,
    SOUND,
    TOOLS,
    Fault,
    add,
    cut_short,
    drop,
    elsewhere,
    put,
    reply_first,
    swap,
    tools_swapped,
    twice,
    without,
)

__all__ = [
    "FAULTS",
    "SOUND",
    "TOOLS",
    "Fault",
    "add",
    "cut_short",
    "drop",
    "elsewhere",
    "put",
    "reply_first",
    "swap",
    "tools_swapped",
    "twice",
    "without",
]
