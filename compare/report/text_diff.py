"""The difference of two texts as people read it, word by word, Chinese by the character."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from compare.streams.alignment import align

KEPT_AROUND = 60
Op = Literal["same", "gone", "new"]
Change = tuple[str, str, str]
"""What both texts have before a change, what is gone, what is new."""
_WORD = re.compile(
    r"[\u3400-\u9fff\uf900-\ufaff\u3040-\u30ff]|[^\W\u3040-\u9fff\uf900-\ufaff]+|\s|."
)


class Piece(NamedTuple):
    """A stretch of text both have, only the first has (`gone`) or only the second (`new`)."""

    op: Op
    text: str


def word_diff(legacy: str, graph: str) -> list[Piece]:
    """Compare two texts word by word; long stretches both have are shortened in the middle."""
    joined = _joined(_changes(_WORD.findall(legacy), _WORD.findall(graph)))
    ops: tuple[Op, Op, Op] = ("same", "gone", "new")
    pieces = [
        Piece(op, text) for change in joined for op, text in zip(ops, change, strict=True) if text
    ]
    last = len(pieces) - 1
    return [
        Piece(piece.op, _shortened(piece.text, first=k == 0, last=k == last))
        if piece.op == "same"
        else piece
        for k, piece in enumerate(pieces)
    ]


def _changes(old: list[str], new: list[str]) -> list[Change]:
    """Cut texts into changes: what both have before it, what is gone, what is new."""
    changes: list[Change] = []
    same = gone = added = ""
    for block in align(old, new):
        left, right = "".join(old[i] for i in block.left), "".join(new[j] for j in block.right)
        if block.equal:
            if same or gone or added:
                changes.append((same, gone, added))
            same, gone, added = left, "", ""
        else:
            gone, added = gone + left, added + right
    return [*changes, (same, gone, added)]


def _joined(changes: list[Change]) -> list[Change]:
    """Join changes around what both have by accident: a few letters between two long changes.

    What both have becomes part of the change where it is no longer than the change on either side
    of it, as in N. Fraser's semantic clean-up of diff-match-patch.
    """
    joined = changes[:1]
    for same, gone, new in changes[1:]:
        before_same, before_gone, before_new = joined[-1]
        before, after = max(len(before_gone), len(before_new)), max(len(gone), len(new))
        if len(same) <= min(before, after):
            joined[-1] = before_same, before_gone + same + gone, before_new + same + new
        else:
            joined.append((same, gone, new))
    return joined


def _shortened(text: str, *, first: bool, last: bool) -> str:
    """Keep what stands next to a difference."""
    head = "" if first else text[:KEPT_AROUND]
    tail = "" if last else text[-KEPT_AROUND:]
    return text if len(text) <= len(head) + len(tail) + KEPT_AROUND else f"{head} … {tail}"
