"""Edits: how many insertions, removals and replacements lie between two sequences."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

T = TypeVar("T", bound="Hashable")

CELLS_AT_MOST = 1 << 29


def share_edited(one: Sequence[T], other: Sequence[T]) -> float:
    """Give the edit distance as a share of the longer sequence: 0 equal, 1 nothing in common.

    Sequences whose lengths multiply to over `CELLS_AT_MOST` are compared as bags of items, which
    gives the least the edit distance can be.
    """
    longer = max(len(one), len(other))
    if not longer:
        return 0.0
    left, right = _trimmed(one, other)
    if len(left) * len(right) > CELLS_AT_MOST:
        return bag_edits(left, right) / longer
    return edits(left, right) / longer


def _trimmed(one: Sequence[T], other: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Leave out what both begin and end with: it never costs an edit."""
    start, most = 0, min(len(one), len(other))
    while start < most and one[start] == other[start]:
        start += 1
    end = 0
    while end < most - start and one[-1 - end] == other[-1 - end]:
        end += 1
    return one[start : len(one) - end], other[start : len(other) - end]


def edits(one: Sequence[T], other: Sequence[T]) -> int:
    """Give the Levenshtein distance of two sequences.

    Bit-parallel, one row of the table in one integer: G. Myers, JACM 46 (1999), in the form of
    H. Hyyrö, A bit-vector algorithm for computing Levenshtein and Damerau edit distances (2003).
    """
    if not one or not other:
        return len(one) + len(other)
    places: dict[T, int] = {}
    for index, item in enumerate(one):
        places[item] = places.get(item, 0) | 1 << index
    mask, last, score = (1 << len(one)) - 1, 1 << (len(one) - 1), len(one)
    up, down = mask, 0
    for item in other:
        equal = places.get(item, 0)
        across = (((equal & up) + up) ^ up) | equal
        more = down | (~(across | up) & mask)
        less = up & across
        score += bool(more & last) - bool(less & last)
        more, less = (more << 1 | 1) & mask, less << 1 & mask
        kept = equal | down
        up, down = less | (~(kept | more) & mask), more & kept
    return score


def bag_edits(one: Sequence[T], other: Sequence[T]) -> int:
    """Give the least number of edits, whatever the order: a lower bound of `edits`."""
    shared = Counter(one) & Counter(other)
    return max(len(one), len(other)) - shared.total()
