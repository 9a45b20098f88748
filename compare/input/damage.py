"""Damage: what a reader of captures passed over, counted and named."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from contract.errors import CutoverError

DamageKind = Literal["torn", "broken", "foreign", "missing", "unreadable", "duplicate", "feedback"]
NAMED_AT_MOST = 20
UNBOUNDED: frozenset[DamageKind] = frozenset({"torn", "unreadable"})
"""Damage that may hold any number of runs."""
ILLEGIBLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading JSON raises of bytes that are none, no text, or nested deeper than can be read."""


class Damage(msgspec.Struct, frozen=True):
    """One thing passed over.

    `torn`: a batch that does not end or does not decompress; `broken`: a line that is no run;
    `foreign`: a run of another version of the format; `missing`: a long text that was stored apart
    and is not there; `unreadable`: a file that cannot be read at all; `duplicate`: a run or an
    exchange that was read before, and is counted once; `feedback`: a file, batch or line of
    feedback that cannot be read.
    """

    kind: DamageKind
    place: str
    detail: str


@dataclass(slots=True)
class DamageTally:
    """Damage by kind, and the first `NAMED_AT_MOST` of it."""

    damage: Counter[str] = field(default_factory=Counter)
    named: list[Damage] = field(default_factory=list)

    def damaged(self, damage: Damage) -> None:
        """Count what was passed over, and name the first of it."""
        self.damage[damage.kind] += 1
        if len(self.named) < NAMED_AT_MOST:
            self.named.append(damage)

    @property
    def runs_damaged(self) -> int:
        """How often something was passed over that holds runs: feedback holds none."""
        return sum(self.damage.values()) - self.damage["feedback"]


class CapturesUnreadable(CutoverError):
    """The place given for captures cannot be read at all."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"cannot read captures at {place!r}: {why}")
        self.place = place
        self.why = why
