"""Plays: what a run asked for, and what it was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from contract.records import PlayRecord
from effects.tape.keys import label

if TYPE_CHECKING:
    from contract.operations import Operation
    from contract.records import How
    from effects.tape.tape import Entry


@dataclass(slots=True, eq=False)
class Play:
    """One call a run made: what it asked, when, and which entry it was given.

    It is the `n`-th with these arguments and the `ordinal`-th at its site. It is noted when it is
    asked, so that plays stand in the order of asking, whoever waits longer; until an entry is
    given it counts as missed. An entry that is `apart` is on no tape that is written down.
    """

    operation: Operation
    site: str
    args: bytes
    at: int
    n: int
    ordinal: int
    how: How = "missed"
    entry: Entry | None = None
    apart: bool = False

    @property
    def label(self) -> str:
        """Name of the call, for messages to people."""
        return label(self.operation, self.site, self.args)

    def record(self) -> PlayRecord:
        """Write the play down; arguments only where the entry has others."""
        entry = None if self.apart else self.entry
        same = entry is not None and entry.args == self.args
        return PlayRecord(
            port=self.operation.port,
            op=self.operation.name,
            site=self.site,
            how=self.how,
            at=self.at,
            entry=None if entry is None else entry.seq,
            args=None if same else msgspec.Raw(self.args),
        )
