"""How two runs differ, and whether it matters. Reads records, never code."""

from compare.captures import Question, compare_captures, compare_segment
from compare.comparison import Comparer
from compare.findings import Finding
from compare.input.damage import CapturesUnreadable, Damage
from compare.input.pairing import Pair, Unpaired, pair_of
from compare.input.segments import find_segments
from compare.tally import Tally
from compare.verdict import Verdict, verdict_on

__all__ = [
    "CapturesUnreadable",
    "Comparer",
    "Damage",
    "Finding",
    "Pair",
    "Question",
    "Tally",
    "Unpaired",
    "Verdict",
    "compare_captures",
    "compare_segment",
    "find_segments",
    "pair_of",
    "verdict_on",
]
