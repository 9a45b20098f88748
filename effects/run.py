"""A run's view of the tape: which call it gets for what it asks, and what it played."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import msgspec

from contract import operations as ops
from contract.errors import EffectFailed, Fenced, TapeCut, TapeMiss
from contract.records import PlayRecord
from effects.ports import NodeTimes, taped
from effects.tape import canonical

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contract.faults import Fault
    from contract.operations import Operation
    from contract.ports import Effects
    from contract.records import How
    from effects.exchange import Exchange
    from effects.tape import Entry

Policy = Literal["live", "nearest", "fail", "resume"]
"""What happens when a call is not on the tape.

`live`: make it and record it. `nearest`: note it, play the call of the same site and ordinal.
`fail`: raise. `resume`: raise until the human's answer has been played, then `live`.
"""


@dataclass(frozen=True, slots=True)
class Play:
    """One call a run made: what it asked, when, and which entry it was given."""

    operation: Operation
    site: str
    args: bytes
    how: How
    at: int
    entry: Entry | None

    def record(self) -> PlayRecord:
        """Write the play down; arguments only where the entry has others."""
        same = self.entry is not None and self.entry.args == self.args
        return PlayRecord(
            port=self.operation.port,
            op=self.operation.name,
            site=self.site,
            how=self.how,
            at=self.at,
            entry=None if self.entry is None else self.entry.seq,
            args=None if same else msgspec.Raw(self.args),
        )


class Run:
    """One stack's way through an exchange: the ports it gets and the calls it made."""

    def __init__(
        self,
        exchange: Exchange,
        name: str,
        policy: Policy = "live",
        *,
        answer: Entry | None = None,
    ) -> None:
        self.name = name
        self.plays: list[Play] = []
        self.fenced = False
        self.waiting = 0
        self.fault: Fault | None = None
        self.touched = exchange.stamp()
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
        return taped(self.call, self.stream, self.trace)

    def fence(self) -> None:
        """Refuse every further call: another run has taken this one's place."""
        self.fenced = True

    def touch(self) -> None:
        """Note that the stack did something."""
        self.touched = self._exchange.stamp()

    def owes_since(self) -> int | None:
        """Stamp since when the stack owes a sign of life; None while it waits for the world."""
        return None if self.waiting else self.touched

    async def call(self, operation: Operation, site: str, arguments: msgspec.Struct) -> Any:  # noqa: ANN401
        """Make or play a call that has one result."""
        entry = await self._claim(operation, site, arguments)
        if entry.end == "open":
            while entry.end == "open":
                await self._wait(entry)
        elif not self._records:
            await asyncio.sleep(0)
        self._check()
        self.touch()
        if entry.end != "complete":
            self._raise_end(entry)
        return entry.items[0]

    async def stream(
        self, operation: Operation, site: str, arguments: msgspec.Struct
    ) -> AsyncIterator[Any]:
        """Make or play a call that has many results; tails an entry still being recorded."""
        entry = await self._claim(operation, site, arguments)
        items, position = entry.items, 0
        polite = entry.end != "open"
        while True:
            self._check()
            if position < len(items):
                item = items[position]
                if self._tape.overflowed:
                    items[position] = None
                position += 1
                self.touch()
                yield item
                if polite:
                    # Without this a finished entry would be read in one go, and hold up the loop.
                    await asyncio.sleep(0)
            elif entry.end == "open":
                await self._wait(entry)
            else:
                break
        self.touch()
        if entry.end != "complete":
            self._raise_end(entry)

    @property
    def _records(self) -> bool:
        return self._policy in {"live", "resume"}

    def _check(self) -> None:
        if self.fenced:
            raise Fenced(self.name)
        if self._tape.overflowed and not self._records:
            raise TapeCut(self.name)

    async def _wait(self, entry: Entry) -> None:
        self.waiting += 1
        try:
            await entry.changed.wait()
        finally:
            self.waiting -= 1

    async def _claim(self, operation: Operation, site: str, arguments: msgspec.Struct) -> Entry:
        """Find or make the entry for a call and note the play."""
        self._check()
        self.touch()
        args = canonical(arguments)
        key = (operation.label, site, args)
        n = self._counts.get(key, 0)
        self._counts[key] = n + 1
        ordinal = self._ordinals.get(key[:2], 0)
        self._ordinals[key[:2]] = ordinal + 1
        entry = self._tape.find(operation, site, args, n)
        while entry is None and self._tape.recording and not self._records:
            entry = await self._await_call(operation, site, args, n)
        if entry is not None:
            return self._note(operation, site, args, "exact", entry)
        return await self._miss(operation, site, arguments, args, ordinal)

    async def _await_call(
        self, operation: Operation, site: str, args: bytes, n: int
    ) -> Entry | None:
        self.waiting += 1
        try:
            await self._tape.changed.wait()
        finally:
            self.waiting -= 1
        self._check()
        return self._tape.find(operation, site, args, n)

    async def _miss(
        self,
        operation: Operation,
        site: str,
        arguments: msgspec.Struct,
        args: bytes,
        ordinal: int,
    ) -> Entry:
        if self._policy == "live" or (self._policy == "resume" and self._answered):
            return await self._live(operation, site, arguments, args)
        near = self._nearest(operation, site, ordinal)
        if self._policy == "nearest" and near is not None:
            return self._note(operation, site, args, "nearest", near)
        self.plays.append(Play(operation, site, args, "missed", self._exchange.stamp(), None))
        wanted = f"{operation.label}({site!r}) {args[:200].decode('utf-8', 'replace')}"
        code = "resume_mismatch" if self._policy == "resume" else "tape_miss"
        raise TapeMiss(wanted, near.label if near is not None else None, code=code)

    async def _live(
        self, operation: Operation, site: str, arguments: msgspec.Struct, args: bytes
    ) -> Entry:
        if operation is ops.HUMAN_ANSWER:
            entry = await self._exchange.ask_human(site, arguments, args)
        elif operation.kind == "instant":
            entry = await self._exchange.perform_now(operation, site, arguments, args)
        else:
            entry = self._exchange.start(operation, site, arguments, args)
        return self._note(operation, site, args, "live", entry)

    @property
    def _answered(self) -> bool:
        return self._answer is None or self._answer.seq in self._played

    def _nearest(self, operation: Operation, site: str, ordinal: int) -> Entry | None:
        """Give the call of the same ordinal, or the first at that site nobody asked for yet."""
        there = self._tape.at_site(operation, site)
        if ordinal < len(there) and there[ordinal].seq not in self._played:
            return there[ordinal]
        return next((entry for entry in there if entry.seq not in self._played), None)

    def _note(self, operation: Operation, site: str, args: bytes, how: How, entry: Entry) -> Entry:
        self._played.add(entry.seq)
        self.plays.append(Play(operation, site, args, how, self._exchange.stamp(), entry))
        return entry

    def _raise_end(self, entry: Entry) -> NoReturn:
        if entry.fault is not None:
            self.fault = entry.fault
            raise EffectFailed(entry.fault)
        raise TapeCut(entry.label)
