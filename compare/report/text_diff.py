"""Words: the difference of two texts as people read it, Chinese character by character."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Literal, NamedTuple

from compare.streams.alignment import align

KEPT_AROUND = 60
Op = Literal["same", "gone", "new"]
_WORD = re.compile(
    r"[\u3400-\u9fff\uf900-\ufaff\u3040-\u30ff]|[^\W\u3040-\u9fff\uf900-\ufaff]+|\s|."
)


class Piece(NamedTuple):
    """A stretch of text both have, only the first has (`gone`) or only the second (`new`)."""

    op: Op
    text: str


def word_diff(legacy: str, graph: str) -> list[Piece]:
    """Compare two texts word by word; long stretches both have are shortened in the middle."""
    old, new = _WORD.findall(legacy), _WORD.findall(graph)
    pieces = _legible(list(_pieces(old, new)))
    last = len(pieces) - 1
    return [
        Piece(piece.op, _middle_out(piece.text, first=k == 0, last=k == last))
        if piece.op == "same"
        else piece
        for k, piece in enumerate(pieces)
    ]


def _pieces(old: list[str], new: list[str]) -> Iterator[Piece]:
    for block in align(old, new):
        left, right = "".join(old[i] for i in block.left), "".join(new[j] for j in block.right)
        if block.equal:
            yield Piece("same", left)
            continue
        if left:
            yield Piece("gone", left)
        if right:
            yield Piece("new", right)


def _legible(pieces: list[Piece]) -> list[Piece]:
    """Join changes around what both have by accident: a few letters between two long changes.

    What both have is given up where it is no longer than the change on either side of it, as in
    N. Fraser's semantic clean-up of diff-match-patch.
    """
    changes = _changes(pieces)
    joined: list[tuple[str, str, str]] = changes[:1]
    for same, gone, new in changes[1:]:
        _, before_gone, before_new = joined[-1]
        before, after = max(len(before_gone), len(before_new)), max(len(gone), len(new))
        if len(same) <= min(before, after):
            kept = joined.pop()[0]
            joined.append((kept, before_gone + same + gone, before_new + same + new))
        else:
            joined.append((same, gone, new))
    ops: tuple[Op, Op, Op] = ("same", "gone", "new")
    told = zip(ops * len(joined), chain.from_iterable(joined), strict=True)
    return [Piece(op, text) for op, text in told if text]


def _changes(pieces: list[Piece]) -> list[tuple[str, str, str]]:
    """Cut pieces into changes: what both have before it, what is gone, what is new."""
    changes: list[tuple[str, str, str]] = []
    held: dict[Op, str] = {"same": "", "gone": "", "new": ""}
    for piece in pieces:
        if piece.op == "same" and (held["same"] or held["gone"] or held["new"]):
            changes.append((held["same"], held["gone"], held["new"]))
            held = {"same": "", "gone": "", "new": ""}
        held[piece.op] += piece.text
    return [*changes, (held["same"], held["gone"], held["new"])]


def _middle_out(text: str, *, first: bool, last: bool) -> str:
    """Keep what stands next to a difference."""
    head = "" if first else text[:KEPT_AROUND]
    tail = "" if last else text[-KEPT_AROUND:]
    if len(text) <= len(head) + len(tail) + KEPT_AROUND:
        return text
    return f"{head} … {tail}"
