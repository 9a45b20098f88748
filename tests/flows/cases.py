"""Chat requests and worlds drawn from a seed: the self-test's own."""

from cutover.selftest.cases import (
    CALLED,
    FAULTS,
    INFO,
    INTERVALS,
    NAMES,
    PARAMS,
    PAUSES,
    SLOW,
    TEXTS,
    TOOLS,
    case,
)

__all__ = [
    "CALLED",
    "FAULTS",
    "INFO",
    "INTERVALS",
    "NAMES",
    "PARAMS",
    "PAUSES",
    "SLOW",
    "TEXTS",
    "TOOLS",
    "case",
]
