"""Echoes: what one sequence repeats of another that is nearly the same, found by looking ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

AHEAD = 3


def echoes(items: Iterable[object], others: Sequence[object]) -> Iterator[int | None]:
    """Yield, for every item, the index of an equal one among the others, None where none is near.

    A few items dropped, added or changed are looked past; nothing is hashed, for frames are long.
    """
    due, end = 0, len(others)
    for item in items:
        found = None
        if due < end and others[due] == item:  # the usual one
            found = due
        else:
            for index in range(due + 1, min(due + AHEAD, end)):
                if others[index] == item:
                    found = index
                    break
        if found is not None:
            due = found + 1
        yield found
