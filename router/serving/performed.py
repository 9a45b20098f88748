"""Effects that a caller performs itself: it is told to, or what came of it in another run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple

from contract.errors import EffectFailed, Fault
from contract.external import IN_DOUBT, ExternalResult, ExternalUpdate, PerformedCall
from contract.operations import EXTERNAL_READ, EXTERNAL_RUN
from effects.loop_time import limit
from effects.tape import Entry, Play, Signal, TapeSession

MOST_CHARACTERS: Final = 200
"""Of the name of an effect, and of an idempotency key."""


class PlayedEffect(NamedTuple):
    """An effect that was performed before: the values it streamed, and its result."""

    items: list[Any]
    result: ExternalResult


class Lease:
    """The time in which a caller performs an effect, in seconds from one report to the next.

    Without `seconds` it lasts until it is reported or abandoned. `entry` is its call on the tape,
    `id` its name where the caller is told one.
    """

    def __init__(self, seconds: float | None) -> None:
        self.id = ""
        self.seconds = seconds
        self.entry: Entry | None = None
        self.begun = False
        self.ended: Literal["", "reported", "expired"] = ""
        self._heard = False
        self._updates: list[ExternalUpdate] = []
        self._changed = Signal()

    def take(self, updates: Sequence[ExternalUpdate]) -> bool:
        """Take what is reported of an effect; return whether it ends with the result.

        No updates are a sign of life.
        """
        self._updates += updates
        last = bool(updates) and updates[-1].result is not None
        if last:
            self.ended = "reported"
        self._wake()
        return last

    def abandon(self) -> None:
        """End it where it was not reported, and never will be: the effect is in doubt."""
        self.ended = self.ended or "expired"
        self._wake()

    async def opened(self, entry: Entry) -> bool:
        """Wait until the effect may be performed; False where it must not be."""
        self.entry, self._changed = entry, entry.changed
        while not self.begun and entry.end == "open":
            await entry.changed.wait()
        return self.begun

    async def outcome(self, session: TapeSession) -> None:
        """Wait until its call on the tape, and in the journal, has ended, or raise how it did."""
        if self.entry is not None:
            await session.outcome(self.entry)

    async def updates(self) -> AsyncIterator[ExternalUpdate]:
        """Yield what is reported, the result last; fault `effect_in_doubt` where it is not."""
        self.begun = True
        self._changed.wake()
        position = 0
        try:
            while True:
                while position < len(self._updates):
                    yield self._updates[position]
                    position += 1
                if self.ended == "reported":
                    return
                if self.ended:
                    raise EffectFailed(Fault(IN_DOUBT))
                await self._next()
        finally:
            self.ended = self.ended or "expired"

    def _wake(self) -> None:
        self._heard = True
        self._changed.wake()

    async def _next(self) -> None:
        self._heard = False
        if self.seconds is None:
            while not self._heard:
                await self._changed.wait()
            return
        with suppress(TimeoutError):
            async with limit(self.seconds):
                while not self._heard:
                    await self._changed.wait()
                return
        raise EffectFailed(Fault(IN_DOUBT, data={"seconds": self.seconds}))


async def ask(
    session: TapeSession,
    effect: str,
    arguments: Any,
    *,
    read_only: bool,
    key: str,
    seconds: float | None,
) -> Lease | PlayedEffect:
    """Play an effect, or let the caller perform it; with a key again where it is in doubt.

    Raises what a call of a port raises.
    """
    operation = EXTERNAL_READ if read_only else EXTERNAL_RUN
    while True:
        lease = Lease(seconds)
        call = PerformedCall.made(arguments, key, lease.updates)
        try:
            play, entry = await session.begin(operation, effect, call)
            if play.how == "live" and await lease.opened(entry):
                return lease
        except BaseException:
            lease.abandon()  # the caller is gone, and performs nothing
            raise
        try:
            return _played(await session.outcome(entry))
        except EffectFailed as error:
            if not (key and was_left_in_doubt(play, error)):
                raise


def was_left_in_doubt(play: Play, error: EffectFailed) -> bool:
    """Whether a call that failed is one that an earlier run had left in doubt."""
    return error.fault.code == IN_DOUBT and play.how == "exact"


def _played(updates: Sequence[ExternalUpdate]) -> PlayedEffect:
    result = updates[-1].result if updates else None
    if result is None or (result.error is not None and result.error.type == IN_DOUBT):
        raise EffectFailed(Fault(IN_DOUBT))
    return PlayedEffect([update.value for update in updates[:-1]], result)
