"""Words: the difference of two texts as people read it, Chinese character by character."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from compare.alignment import align

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    pieces = list(_pieces(old, new))
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


def _middle_out(text: str, *, first: bool, last: bool) -> str:
    """Keep what stands next to a difference."""
    head = "" if first else text[:KEPT_AROUND]
    tail = "" if last else text[-KEPT_AROUND:]
    if len(text) <= len(head) + len(tail) + KEPT_AROUND:
        return text
    return f"{head} … {tail}"
