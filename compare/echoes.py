"""Echoes: what one sequence repeats of another that is nearly the same, found by looking ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from contract.records import ErrorRecord, Outcome

AHEAD = 3


class Sent(Protocol):
    """What a client saw of a run: a run's record has it, and so has a glance at one."""

    @property
    def frames(self) -> Sequence[tuple[int, object]]:
        """As in `RunRecord`, and so below."""
        ...

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        ...

    @property
    def error(self) -> ErrorRecord | None:
        """And why."""
        ...


def sent_alike(control: Sent, candidate: Sent) -> bool:
    """Whether both runs sent the same bytes and ended alike."""
    if control.outcome != candidate.outcome or control.error != candidate.error:
        return False
    if len(control.frames) != len(candidate.frames):
        return False
    for (_, old), (_, new) in zip(control.frames, candidate.frames, strict=True):
        if old != new:
            return False
    return True


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
