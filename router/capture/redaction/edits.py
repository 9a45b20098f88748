"""Edits of a text, and how they spread over the pieces it was sent in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Edit(NamedTuple):
    """Put `put` in the place of `text[start:end]`."""

    start: int
    end: int
    put: str


def applied(text: str, edits: Sequence[Edit]) -> str:
    """Apply edits, in order and without overlap, to one text."""
    parts: list[str] = []
    done = 0
    for edit in edits:
        parts += (text[done : edit.start], edit.put)
        done = edit.end
    parts.append(text[done:])
    return "".join(parts)


def over_deltas(pieces: Sequence[str], edits: Sequence[Edit]) -> list[str]:
    """Apply edits of the joined pieces to the pieces.

    What is put in goes whole into the piece in which the edited stretch ends.
    """
    result: list[str] = []
    start = 0
    for piece in pieces:
        end = start + len(piece)
        result.append(applied(piece, list(_within(edits, start, end))))
        start = end
    return result


def over_prefixes(pieces: Sequence[str], edits: Sequence[Edit]) -> list[str]:
    """Apply edits of the last piece to all, each being the beginning of the next.

    A piece that ends inside an edited stretch is cut back to before it.
    """
    return [_cut(piece, edits) for piece in pieces]


def chains(pieces: Sequence[str]) -> Iterator[list[str]]:
    """Split cumulative texts into runs in which each is the beginning of the next."""
    chain: list[str] = []
    for piece in pieces:
        if chain and not piece.startswith(chain[-1]):
            yield chain
            chain = []
        chain.append(piece)
    if chain:
        yield chain


def _within(edits: Sequence[Edit], start: int, end: int) -> Iterator[Edit]:
    for edit in edits:
        if edit.start < end and edit.end > start:
            put = edit.put if edit.end <= end else ""
            yield Edit(max(edit.start, start) - start, min(edit.end, end) - start, put)


def _cut(piece: str, edits: Sequence[Edit]) -> str:
    inside = next((edit for edit in edits if edit.start < len(piece) < edit.end), None)
    if inside is not None:
        piece = piece[: inside.start]
    return applied(piece, [edit for edit in edits if edit.end <= len(piece)])
