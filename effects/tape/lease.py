"""External effects that the caller performs: it is lent the call, and reports what came of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from contract.external import ExternalCall, ExternalUpdate
from effects.loop_time import loop_now
from effects.tape.tape import Entry


class Lender(Protocol):
    """Records what is reported: the exchange."""

    def take(self, lease: Lease, updates: Sequence[ExternalUpdate], /) -> None:
        """Put what is reported on the tape."""
        ...

    async def settle(self, lease: Lease, /) -> None:
        """End a call whose result is on the tape; it is in the journal then, too."""
        ...

    def abandon(self, lease: Lease, /) -> None:
        """End a call that nobody will report: it is in doubt."""
        ...


class Lease:
    """The time in which a caller performs an effect, in seconds from one report to the next.

    Without `seconds` it lasts until it is reported or abandoned, or its call's deadline. `entry` is
    the call on the tape, once it may be performed, `id` its name where the caller is told one. It
    is used on the loop of its exchange.
    """

    __slots__ = ("_heard", "_lender", "_reported", "deadline", "entry", "id", "seconds")

    def __init__(self, seconds: float | None) -> None:
        self.id = ""
        self.seconds = seconds
        self.entry: Entry | None = None
        self.deadline = math.inf
        self._heard = 0.0
        self._lender: Lender | None = None
        self._reported = False

    def begin(self, lender: Lender, entry: Entry, most: float) -> None:
        """Begin; at most so many seconds from now."""
        self._lender, self.entry = lender, entry
        self._heard = loop_now()
        self.deadline = self._heard + most

    @property
    def due(self) -> float:
        """When it is over, in the time of `loop_now`, unless more is reported."""
        silent = math.inf if self.seconds is None else self._heard + self.seconds
        return min(silent, self.deadline)

    @property
    def ended(self) -> Literal["", "reported", "expired"]:
        """How it has ended."""
        if self._reported:
            return "reported"
        entry = self.entry
        open_still = entry is not None and entry.end == "open" and entry.fault is None
        return "" if open_still else "expired"

    def take(self, updates: Sequence[ExternalUpdate]) -> bool:
        """Take what is reported; return whether it ends with the result: then call `settle`.

        No updates are a sign of life.
        """
        self._heard = loop_now()
        self._reported = bool(updates) and updates[-1].result is not None
        if self._lender is not None:
            self._lender.take(self, updates)
        return self._reported

    async def settle(self) -> None:
        """Return once what was reported is on the tape, and in the journal."""
        if self._lender is not None:
            await self._lender.settle(self)

    def abandon(self) -> None:
        """End it where it was not reported, and never will be: the effect is in doubt."""
        if self._lender is not None and not self.ended:
            self._lender.abandon(self)


class LentCall(ExternalCall, frozen=True, omit_defaults=True, dict=True):
    """A call that its caller performs; on the tape, and in its key, it is the plain call."""

    @classmethod
    def made(cls, arguments: Any, key: str, lease: Lease) -> LentCall:
        """Make a call under a lease."""
        call = cls(arguments, key)
        call.__dict__["lease"] = lease
        return call

    @property
    def lease(self) -> Lease:
        """The lease, which begins once the call may be performed."""
        lease: Lease = self.__dict__["lease"]
        return lease
