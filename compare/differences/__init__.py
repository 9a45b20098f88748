"""How two runs of one exchange differ: one function decides, and explains."""

from compare.differences.comparison import AT_ONCE, HELD_US, Comparison, differences
from compare.differences.difference import SLIGHT, Difference, Kind, Pair
from compare.differences.rules import NONE, Rules, read_rules

__all__ = [
    "AT_ONCE",
    "HELD_US",
    "NONE",
    "SLIGHT",
    "Comparison",
    "Difference",
    "Kind",
    "Pair",
    "Rules",
    "differences",
    "read_rules",
]
