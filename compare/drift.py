"""Drift: how far conversations of a shadow's own go apart from those that were served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from compare.answers import own_history
from compare.findings import TextChanged

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

    from compare.findings import Finding
    from compare.pairs import Pair

DEEPEST: Final = 20
"""Own answers that are counted one by one; those who were told more count with these."""


class Drift(msgspec.Struct, frozen=True):
    """Of the pairs whose shadow was told `answers` of its own, how many texts differ.

    `answers` of 20 are 20 and more.
    """

    answers: int
    pairs: int
    differ: int


def count_drift(depths: Counter[tuple[int, bool]], pair: Pair, found: Iterable[Finding]) -> None:
    """Count a pair of a shadow with conversations of its own, by depth and whether texts differ."""
    told = own_history(pair)
    if told is not None:
        differs = any(isinstance(finding, TextChanged) for finding in found)
        depths[min(told.own, DEEPEST), differs] += 1


def drift_of(depths: Counter[tuple[int, bool]]) -> tuple[Drift, ...]:
    """Give the drift by depth."""
    return tuple(
        Drift(answers, depths[answers, False] + depths[answers, True], depths[answers, True])
        for answers in sorted({answers for answers, _ in depths})
    )


def drift_said(drift: Iterable[Drift]) -> str:
    """Say it in a line."""
    told = (f"{_told(one.answers)}: {one.differ:,} of {one.pairs:,}" for one in drift)
    return f"texts that differ, by how many answers of its own a shadow was told: {', '.join(told)}"


def _told(answers: int) -> str:
    return f"{answers} and more" if answers == DEEPEST else str(answers)
