"""A pair: the run that served an exchange, and the one that was played on its tape."""

from __future__ import annotations

from dataclasses import dataclass

from cutover.records import RunRecord, TapeRecord


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs of one exchange; `served` is the one that served last, with the client's end.

    Differences are read from `legacy` to `graph`, whichever of them served. Of two runs of one
    stack (A/A), the one that served stands for legacy.
    """

    served: RunRecord
    played: RunRecord
    tape: TapeRecord

    @property
    def legacy(self) -> RunRecord:
        """The control's run."""
        return self.played if self.served.stack == "graph" != self.played.stack else self.served

    @property
    def graph(self) -> RunRecord:
        """The candidate's run."""
        return self.served if self.legacy is self.played else self.played
