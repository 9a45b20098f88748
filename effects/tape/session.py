"""A run's view of the tape: which call it gets for what it asks, and what it played."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import msgspec

from contract import operations as ops
from contract.errors import CutoverError, EffectFailed, Fenced, Paused, TapeCut, TapeMiss
from contract.human import AwaitAnswer
from effects.tape.keys import canonical
from effects.tape.play import Play
from effects.tape.taped_ports import NodeTimes, taped

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextvars import Context

    from contract.errors import Fault
    from contract.operations import Operation
    from contract.ports import Effects
    from contract.records import How, OwnHistory
    from effects.tape.exchange import Exchange
    from effects.tape.tape import Entry, Signal

Policy = Literal["live", "nearest", "fail", "resume"]
"""What happens when a call is not on the tape.

`live`: make it and record it. `nearest`: note it, play the call of the same site and ordinal.
`fail`: raise. `resume`: raise until the human's answer has been played, then `live`.
"""


MOST_ASKED: Final = 128 << 20
"""Bytes of calls one run may make: far more than any answer needs."""
CALL: Final = 8_192
"""What a call counts beside its arguments: also small ones come to an end."""
_AT_A_TIME: Final = 32
"""Calls after which a stack lets others have their turn: some are answered on the spot."""


class AskedTooMuch(CutoverError):
    """A stack makes calls without end."""

    def __init__(self, calls: int) -> None:
        super().__init__(f"{calls} calls, and no end of them")


class TapeSession:
    """One stack's way through an exchange: the ports it gets and the calls it made."""

    def __init__(
        self,
        exchange: Exchange,
        name: str,
        policy: Policy = "live",
        *,
        answer: Entry | None = None,
        stamp: Callable[[], int] | None = None,
    ) -> None:
        self.name = name
        self.plays: list[Play] = []
        self.fenced = False
        self.waiting = 0
        self.fault: Fault | None = None
        self._stamp = stamp or exchange.stamp
        self.touched = self._stamp()
        self.unprompted = self._asked = 0
        self.trace = NodeTimes()
        self._exchange = exchange
        self._tape = exchange.tape
        self._policy: Policy = policy
        self._answer = answer
        self._counts: dict[tuple[str, str, bytes], int] = {}
        self._ordinals: dict[tuple[str, str], int] = {}
        self._played: set[int] = set()

    def effects(self) -> Effects:
        """Bundle the ports through which this run's stack reaches the world."""
        return taped(self.call, self.stream, self.trace, rehearsal=not self._records)

    def context(self) -> Context:
        """Make a context for the task that drives the run."""
        return self._exchange.context()

    def fence(self) -> None:
        """Refuse every further call: another run has taken this one's place."""
        self.fenced = True

    def touch(self) -> None:
        """Note that the stack did something."""
        self.touched = self._stamp()

    def keep(self, size: int) -> None:
        """Note the bytes of a frame that is kept until the exchange is written down.

        `unprompted` is how many there were since the stack last heard from the tape.
        """
        self.unprompted += size
        if self._records:
            self._tape.keep_beside(size)

    @property
    def history(self) -> OwnHistory | None:
        """What it was told of conversations of its own; None of a run that holds none."""
        return None

    def owes_since(self) -> int | None:
        """Stamp since when the stack owes a sign of life; None while it waits for the world."""
        return None if self.waiting else self.touched

    async def call(self, operation: Operation, site: str, arguments: msgspec.Struct) -> Any:
        """Make or play a call that has one result."""
        if len(self.plays) % _AT_A_TIME == _AT_A_TIME - 1:
            await self.give_way()
        play = self._ask(operation, site, arguments)
        entry = play.entry or await self._obtain(play, arguments)
        if entry.end == "open":
            while entry.end == "open":
                await self._wait(entry.changed)
        elif play.how != "live":
            await self.give_way()
        self._check()
        self.touch()
        self.unprompted = 0
        if entry.end != "complete":
            self._raise_end(entry)
        return entry.items[0]

    async def stream(
        self, operation: Operation, site: str, arguments: msgspec.Struct, args: bytes | None = None
    ) -> AsyncGenerator[Any, None]:
        """Make or play a call that has many results; tails an entry still being recorded.

        `args` is what the arguments are known by, where the caller knows.
        """
        play = self._ask(operation, site, arguments, args)
        entry = play.entry or await self._obtain(play, arguments)
        items, position = entry.items, 0
        polite = entry.end != "open" or not self._records
        while True:
            self._check()
            if position < len(items):
                item = items[position]
                if self._tape.overflowed:
                    entry.drop(position)
                position += 1
                self.touch()
                self.unprompted = 0
                yield item
                if polite:
                    await self.give_way()
            elif entry.end == "open":
                await self._wait(entry.changed)
            else:
                break
        self.touch()
        if entry.end != "complete":
            self._raise_end(entry)

    async def give_way(self) -> None:
        """Leave the loop to others after each item that was there already.

        Without this a recorded flow would be played in one go, and hold up the loop.
        """
        await asyncio.sleep(0)

    @property
    def _records(self) -> bool:
        return self._policy in {"live", "resume"}

    def _check(self) -> None:
        if self.fenced:
            raise Fenced(self.name)
        if self._tape.overflowed and not self._records:
            raise TapeCut(self.name)

    async def _wait(self, signal: Signal) -> None:
        self.waiting += 1
        try:
            await signal.wait()
        finally:
            self.waiting -= 1

    def _ask(
        self, operation: Operation, site: str, arguments: msgspec.Struct, args: bytes | None = None
    ) -> Play:
        """Note a call, with its entry if that is on the tape."""
        self._check()
        self.touch()
        args = canonical(arguments) if args is None else args
        self._asked += CALL + len(args)
        if self._asked > MOST_ASKED:
            raise AskedTooMuch(len(self.plays))
        key = (operation.label, site, args)
        n = self._counts.get(key, 0)
        ordinal = self._ordinals.get(key[:2], 0)
        self._counts[key], self._ordinals[key[:2]] = n + 1, ordinal + 1
        play = Play(operation, site, args, self.touched, n, ordinal)
        self.plays.append(play)
        self._look_up(play)
        return play

    def _look_up(self, play: Play) -> None:
        entry = self._tape.find(play.operation, play.site, play.args, play.n)
        if entry is not None:
            self._give(play, "exact", entry)

    def _give(self, play: Play, how: How, entry: Entry) -> Entry:
        play.how, play.entry = how, entry
        self._played.add(entry.seq)
        return entry

    async def _obtain(self, play: Play, arguments: msgspec.Struct) -> Entry:
        """Get the entry of a call that is not on the tape, or not yet."""
        while play.entry is None and self._tape.recording and not self._records:
            await self._wait(self._tape.changed)
            self._check()
            self.touch()
            self._look_up(play)
        try:
            return play.entry or await self._miss(play, arguments)
        except Paused:
            self.plays.remove(play)  # a question is not a call that went wrong
            raise

    async def _miss(self, play: Play, arguments: msgspec.Struct) -> Entry:
        policy = self._policy
        if policy == "live" or (policy == "resume" and self.answered):
            return self._give(play, "live", await self._live(play, arguments))
        near = self._nearest(play)
        given = self._again(play) or near
        if policy == "nearest" and given is not None:
            return self._give(play, "nearest", given)
        if policy != "resume" and near is None and isinstance(arguments, AwaitAnswer):
            raise Paused(arguments.hitl_id)  # the tape ends in this question
        code = "resume_mismatch" if policy == "resume" else "tape_miss"
        raise TapeMiss(play.label, None if near is None else near.label, code=code)

    async def _live(self, play: Play, arguments: msgspec.Struct) -> Entry:
        operation, site, args = play.operation, play.site, play.args
        if operation is not ops.HUMAN_ANSWER and operation.kind != "instant":
            return self._exchange.start(operation, site, arguments, args)
        self.waiting += 1  # for the world, even if the world answers on the spot
        try:
            if operation is ops.HUMAN_ANSWER:
                return await self._exchange.ask_human(site, arguments, args)
            return await self._exchange.perform_now(operation, site, arguments, args)
        finally:
            self.waiting -= 1

    @property
    def answered(self) -> bool:
        """Whether the run has passed the answer it was resumed with: frames before it are old."""
        return self._answer is None or self._answer.seq in self._played

    def _again(self, play: Play) -> Entry | None:
        """Give the entry of the call made just before, if that was the same one.

        Whoever asks twice in a row threw an answer away, and gets it once more: the answer to the
        next question would lead the run astray. A third time it is a call like any other.
        """
        made = self.plays.index(play)
        before = self.plays[made - 1] if made else None
        if before is None or before.how != "exact" or before.entry is None:
            return None
        asked = play.operation.label, play.site, play.args
        same = asked == (before.operation.label, before.site, before.args)
        return before.entry if same else None

    def _nearest(self, play: Play) -> Entry | None:
        """Give the call of the same ordinal, or the first at that site nobody asked for yet."""
        there = self._tape.at_site(play.operation, play.site)
        if play.ordinal < len(there) and there[play.ordinal].seq not in self._played:
            return there[play.ordinal]
        return next((entry for entry in there if entry.seq not in self._played), None)

    def _raise_end(self, entry: Entry) -> NoReturn:
        if entry.fault is not None:
            self.fault = entry.fault
            raise EffectFailed(entry.fault)
        raise TapeCut(entry.label)
