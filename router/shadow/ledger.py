"""The shadow ledger: every eligible request ends in exactly one state."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

import msgspec

from contract.errors import CutoverError

if TYPE_CHECKING:
    from collections.abc import Callable

State = Literal["not_sampled", "dropped", "cancelled", "failed", "compared"]


class AlreadySettled(CutoverError):
    """A request was to be settled twice, or was never opened."""

    def __init__(self, exchange: str) -> None:
        super().__init__(f"exchange {exchange!r} is not open in the ledger")


class Line(msgspec.Struct, frozen=True):
    """A state with its reason; `compared` has `equal` or `different` as its reason."""

    flow: str
    state: State
    reason: str = ""


def _nobody(_exchange: str, _line: Line) -> None:
    return


class Ledger:
    """Counts where the shadow of each request ended, and tells `settled` of each."""

    def __init__(self, settled: Callable[[str, Line], None] = _nobody) -> None:
        self._settled = settled
        self.counts: Counter[Line] = Counter()
        self._open: dict[str, str] = {}

    @property
    def open(self) -> int:
        """How many requests have not been settled yet."""
        return len(self._open)

    def begin(self, exchange: str, flow: str) -> None:
        """Open the account of a request."""
        self._open[exchange] = flow

    def settle(self, exchange: str, state: State, reason: str = "") -> None:
        """Close it; raises `AlreadySettled` when it is not open."""
        flow = self._open.pop(exchange, None)
        if flow is None:
            raise AlreadySettled(exchange)
        line = Line(flow, state, reason)
        self.counts[line] += 1
        self._settled(exchange, line)

    def total(self, state: State | None = None) -> int:
        """How many requests ended in a state, or at all."""
        return sum(n for line, n in self.counts.items() if state in {None, line.state})
