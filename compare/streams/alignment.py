"""Alignment: the edit script between two sequences, so one inserted item is one edit."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

MATCHED_AT_MOST = 2_000


@dataclass(frozen=True, slots=True)
class Block:
    """Items `left` of one sequence stand where items `right` of the other do."""

    left: range
    right: range
    equal: bool


def align(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[Block]:
    """Cut both sequences into blocks, equal and not, in order.

    What both begin and end with is matched first: streams usually differ in one place. Middles
    longer than `MATCHED_AT_MOST` on both sides are one block, for the matcher is quadratic.
    """
    head = _shared(left, right)
    tail = _shared(left[head:][::-1], right[head:][::-1])
    ends = len(left) - tail, len(right) - tail
    blocks = [Block(range(head), range(head), equal=True)] if head else []
    blocks += _middle(left, right, head, ends)
    if tail:
        blocks.append(Block(range(ends[0], len(left)), range(ends[1], len(right)), equal=True))
    return blocks


def _shared(left: Sequence[Hashable], right: Sequence[Hashable]) -> int:
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count


def _middle(
    left: Sequence[Hashable], right: Sequence[Hashable], head: int, ends: tuple[int, int]
) -> Iterator[Block]:
    a, b = left[head : ends[0]], right[head : ends[1]]
    if not a and not b:
        return
    if min(len(a), len(b)) > MATCHED_AT_MOST or set(a).isdisjoint(b):
        yield Block(range(head, ends[0]), range(head, ends[1]), equal=False)
        return
    for op, i1, i2, j1, j2 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        yield Block(range(head + i1, head + i2), range(head + j1, head + j2), equal=op == "equal")
