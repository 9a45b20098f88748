"""The shadow ledger: every eligible request ends in exactly one state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from contract.errors import CutoverError
from router.context import LedgerLine, LedgerState


class AlreadySettled(CutoverError):
    """A request was to be settled twice, or was never opened."""

    def __init__(self, exchange: str) -> None:
        super().__init__(f"exchange {exchange!r} is not open in the ledger")


class Ledger:
    """Counts where the shadow of each request ended; `on_settled` is called with each line."""

    def __init__(self, on_settled: Callable[[str, LedgerLine], object] | None = None) -> None:
        self.on_settled = on_settled
        self.counts: Counter[LedgerLine] = Counter()
        self._open: dict[str, str] = {}

    @property
    def open(self) -> int:
        """How many requests are not settled yet."""
        return len(self._open)

    def begin(self, exchange: str, flow: str) -> None:
        """Open the account of a request."""
        self._open[exchange] = flow

    def settle(self, exchange: str, state: LedgerState, reason: str = "") -> None:
        """Close it; raises `AlreadySettled` where it is not open."""
        flow = self._open.pop(exchange, None)
        if flow is None:
            raise AlreadySettled(exchange)
        line = LedgerLine(flow, state, reason)
        self.counts[line] += 1
        if self.on_settled is not None:
            self.on_settled(exchange, line)

    def total(self, state: LedgerState | None = None) -> int:
        """Return how many requests ended in a state, or at all."""
        return sum(n for line, n in self.counts.items() if state in {None, line.state})
