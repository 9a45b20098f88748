"""Pace: whether a tape is played at once, or each item at the moment it was recorded."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from effects.tape import Entry, Tape, TapeSession

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    import msgspec

    from contract.operations import Operation
    from effects.tape import Exchange

Pace = Literal["full", "recorded"]
_SECOND = 1_000_000


class TapeClock:
    """Time as the tape tells it: the moment of the newest item a run has been given.

    At full pace frames and calls are stamped by it, so that equal replays are equal to the byte.
    """

    __slots__ = ("_us",)

    def __init__(self) -> None:
        self._us = 0

    def heard(self, at: int) -> None:
        """Go on to a moment, in microseconds since the exchange began; never back."""
        self._us = max(self._us, at)

    def seconds(self) -> float:
        """Tell the time; half a microsecond more, so that no rounding leads back."""
        return (self._us + 0.5) / _SECOND


class ClockedRun(TapeSession):
    """A run on a finished tape that tells a clock what it has been given."""

    def __init__(self, exchange: Exchange, name: str, clock: TapeClock) -> None:
        super().__init__(exchange, name, "nearest")
        self._clock = clock

    async def call(self, operation: Operation, site: str, arguments: msgspec.Struct) -> Any:
        """Play a call that has one result; the clock moves on to its end."""
        number = len(self.plays)  # nothing runs between here and the note the call makes of itself
        try:
            return await super().call(operation, site, arguments)
        finally:
            self._heard(number)

    async def stream(
        self, operation: Operation, site: str, arguments: msgspec.Struct, args: bytes | None = None
    ) -> AsyncGenerator[Any, None]:
        """Play a call that has many results; the clock moves on with each."""
        number = len(self.plays)
        async for item in super().stream(operation, site, arguments, args):
            self._clock.heard(item.at)
            yield item
        self._heard(number)

    def _heard(self, number: int) -> None:
        entry = self.plays[number].entry if number < len(self.plays) else None
        if entry is not None:
            self._clock.heard(entry.ended)


class Moment(NamedTuple):
    """Something that happens to a tape: an entry opens (`item` -1), gets an item, or ends."""

    at: int
    entry: Entry
    item: int


class Feeder:
    """Records a tape once more, each item at the moment it was recorded first."""

    def __init__(self, source: Tape) -> None:
        self.tape = Tape(limit=sys.maxsize)
        # Sorting keeps the order of what happens at one moment: entries open in their order.
        self._moments = sorted(_all_moments(source), key=lambda moment: moment.at)

    async def feed(self, exchange: Exchange) -> None:
        """Do it on an exchange's clock; ends when the tape is complete."""
        fed: dict[int, Entry] = {}
        for moment in self._moments:
            left = moment.at - exchange.stamp()
            if left > 0:
                await asyncio.sleep(left / _SECOND)
            self._happen(moment, fed)
        self.tape.stop_recording()

    def _happen(self, moment: Moment, fed: dict[int, Entry]) -> None:
        old = moment.entry
        if moment.item < 0:
            fed[old.seq] = self.tape.add(old.operation, old.site, old.args, old.at)
        elif moment.item < len(old.items):
            fed[old.seq].append(old.items[moment.item])
        else:
            fed[old.seq].close(old.end, old.ended, old.fault)


def _all_moments(source: Tape) -> Iterator[Moment]:
    opened = 0
    for entry in source.entries:
        opened = max(opened, entry.at)
        yield from _moments(entry, opened)


def _moments(entry: Entry, at: int) -> Iterator[Moment]:
    """List what happens to an entry; an item without a stamp comes with the entry's end."""
    yield Moment(at, entry, -1)
    for index, item in enumerate(entry.items):
        at = max(at, getattr(item, "at", 0) or entry.ended)
        yield Moment(at, entry, index)
    yield Moment(max(at, entry.ended), entry, len(entry.items))
