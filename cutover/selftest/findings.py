"""What the comparison says of two runs: causes, by layer and kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from compare import Comparer, Unpaired, pair_of
from compare.findings import kind_of
from contract.errors import CutoverError
from contract.flows.chat import CHAT

if TYPE_CHECKING:
    from contract.records import RunRecord


class Cause(NamedTuple):
    """A finding that follows from no other."""

    layer: str
    kind: str
    path: str

    def __str__(self) -> str:
        """Say it in one line."""
        return f"{self.layer}: {self.kind} at {self.path}"


class NotAPair(CutoverError):
    """Two runs the self-test made cannot be compared."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the self-test made two runs that are no pair: {reason!r}")


_comparer = Comparer(CHAT)


def causes(runs: tuple[RunRecord, ...]) -> tuple[Cause, ...]:
    """Compare the two runs of an exchange; raises `NotAPair`."""
    pair = pair_of(runs)
    if isinstance(pair, Unpaired):
        raise NotAPair(pair.reason)
    found = _comparer.compare(pair)
    return tuple(Cause(f.layer, kind_of(f), f.path) for f in found if f.after is None)
