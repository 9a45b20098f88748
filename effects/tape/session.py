"""A run's access to the tape: which entry it gets for each call, and what it played."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, NoReturn

import msgspec

from contract.errors import CutoverError, EffectFailed, Fault, Fenced, Paused, TapeCut, TapeMiss
from contract.human import AwaitAnswer
from contract.model import GATEWAY_SITE
from contract.normalisation import normal_args_of
from contract.operations import MODEL_STREAM, OPERATIONS, Operation
from contract.ports import Effects
from contract.records import How, OwnHistory, PlayRecord
from effects.tape.exchange import Exchange
from effects.tape.tape import Entry, Signal, canonical, label

Policy = Literal["live", "nearest", "fail", "resume"]
"""What happens when a call is not on the tape.

`live`: make it and record it. `nearest`: note it, play the call of the same site and ordinal.
`fail`: raise. `resume`: raise until the human's answer has been played, then `live`.
"""

MAX_CALL_BYTES: Final = 128 << 20
"""Bytes of calls one run may make: far more than any answer needs."""
CALL_OVERHEAD: Final = 8_192
"""What a call counts beside its arguments: also small ones come to an end."""
_CALLS_PER_TURN: Final = 32
"""Calls after which a stack gives way to other tasks: some are answered on the spot."""


class TooManyCalls(CutoverError):
    """A stack makes calls without end."""

    def __init__(self, calls: int) -> None:
        super().__init__(f"{calls} calls, and no end of them")


@dataclass(slots=True, eq=False)
class Play:
    """One call a run made, when, behind how many frames, and which entry it got.

    It is the `n`-th with these arguments and the `ordinal`-th at its site. Plays stand in the
    order of the calls; until it gets an entry, a play counts as missed. The entry of a call that
    is `off_tape` is on no tape that is stored.
    """

    operation: Operation
    site: str
    args: bytes
    at: int
    n: int
    ordinal: int
    frames: int
    how: How = "missed"
    entry: Entry | None = None
    off_tape: bool = False
    normal: Callable[[bytes], bytes] | None = None

    @property
    def label(self) -> str:
        """Name of the call, for messages."""
        return label(self.operation, self.site, self.args)

    def record(self) -> PlayRecord:
        """Return the play as it is stored; arguments only where the entry has others."""
        entry = None if self.off_tape else self.entry
        same = entry is not None and entry.args == self.args
        return PlayRecord(
            port=self.operation.port,
            op=self.operation.name,
            site=self.site,
            how=self.how,
            at=self.at,
            entry=None if entry is None else entry.seq,
            args=None if same else msgspec.Raw(self.args),
            frames=self.frames,
        )


class StateChange(NamedTuple):
    """What a node of a graph returned for the state: by key, the bytes of its JSON; and when."""

    at: int
    node: str
    sizes: Mapping[str, int]


class NodeTimes:
    """Collects how long a run's nodes were open, in microseconds.

    `spent` sums them by name, in the order in which the nodes first opened. `total` is the time
    from the start of the run, when this is made, until the last node closed: what was done between
    the nodes counts there alone. `clock` returns nanoseconds. `changes` are those of the state, of
    a run that is watched.
    """

    __slots__ = ("_began", "_stamp", "changes", "clock", "spent", "total")

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.spent: dict[str, int] = {}
        self.total = 0
        self.changes: list[StateChange] = []
        self.clock = clock
        self._stamp: Callable[[], int] | None = None
        self._began = clock()

    def node(self, name: str) -> AbstractContextManager[None]:
        """Time one node."""
        return _OpenNode(self, name)

    def watch(self, stamp: Callable[[], int]) -> None:
        """Collect `changes` from now on, each with a stamp: they cost what encoding them costs."""
        self._stamp = stamp

    def changed(self, node: str, update: object) -> None:
        """Note the sizes of what a node returned for the state, where the run is watched."""
        if self._stamp is not None and update and isinstance(update, Mapping):
            sizes = {str(key): len(_json(value)) for key, value in update.items()}
            self.changes.append(StateChange(self._stamp(), node, sizes))

    def add(self, name: str, opened: int) -> None:
        """Add the time of a node that closes now; it opened at a moment of the clock."""
        closed = self.clock()
        self.spent[name] += (closed - opened) // 1_000
        self.total = (closed - self._began) // 1_000


def _json(value: object) -> bytes:
    """Encode a value of any type: the state of a team's own graph may hold what JSON has not."""
    try:
        return msgspec.json.encode(value, enc_hook=repr)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return repr(value).encode("utf-8", "backslashreplace")


class _OpenNode:
    """A node while it is open."""

    __slots__ = ("_name", "_opened", "_times")

    def __init__(self, times: NodeTimes, name: str) -> None:
        self._times = times
        self._name = name

    def __enter__(self) -> None:
        self._times.spent.setdefault(self._name, 0)
        self._opened = self._times.clock()

    def __exit__(self, *_: object) -> None:
        self._times.add(self._name, self._opened)


class TapeSession:
    """One run's way through an exchange: the ports its stack gets and the calls it made.

    `waiting` counts the calls that wait for the world, `touched` is the stamp of the stack's last
    sign of life, `unprompted` the bytes of frames since the stack last heard from the tape, `fault`
    the last error it got; `frames` counts those produced, -1 where calls and frames come by
    different ways; `context` makes a context for the task that drives the run. A resumed
    run has passed the `answer` once that entry was played.
    """

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
        self.unprompted = 0
        self.frames = -1
        self.trace = NodeTimes()
        self.stamp = stamp or exchange.stamp
        self.context = exchange.context
        self.touched = self.stamp()
        self._exchange = exchange
        self._tape = exchange.tape
        self._usage = exchange.tape.usage
        self._policy: Policy = policy
        self._records = policy in {"live", "resume"}
        self._answer = answer
        self._call_bytes = 0
        self._counts: dict[tuple[Operation, str, bytes], int] = {}
        self._ordinals: dict[tuple[Operation, str], int] = {}
        self._played: set[int] = set()

    def effects(self) -> Effects:
        """Bundle the ports through which this run's stack reaches the world."""
        ports: Any = {name: port(self) for name, port in _PORTS.items()}
        return Effects(**ports, trace=self.trace, rehearsal=not self._records)

    def fence(self) -> None:
        """Refuse every further call: another run has taken over."""
        self.fenced = True

    def touch(self) -> None:
        """Note that the stack did something."""
        self.touched = self.stamp()

    def add_frames(self, count: int, size: int) -> None:
        """Note frames that are stored until the exchange is recorded, of so many bytes in all."""
        if self.frames >= 0:
            self.frames += count
        self.unprompted += size
        if self._records:
            self._usage.add(size, frame=True)

    @property
    def history(self) -> OwnHistory | None:
        """Which replies of its own conversations it read; None for a run that has none."""
        return None

    @property
    def write_seconds_left(self) -> float:
        """The seconds that writes of its exchange may still take; 0 where none is under way."""
        return self._exchange.write_seconds_left

    @property
    def past_answer(self) -> bool:
        """Whether the run has passed the answer it was resumed with: frames before it are old."""
        return self._answer is None or self._answer.seq in self._played

    def idle_since(self) -> int | None:
        """Return the stack's last sign of life; None while it waits for the world."""
        return None if self.waiting else self.touched

    async def call(self, operation: Operation, site: str, arguments: msgspec.Struct) -> Any:
        """Make or play a call that has one result."""
        if len(self.plays) % _CALLS_PER_TURN == _CALLS_PER_TURN - 1:
            await self.give_way()
        play = self._begin(operation, site, canonical(arguments))
        entry = await self._obtain(play, arguments)
        if entry.end == "open":
            while entry.end == "open":
                await self._wait(entry.changed)
        elif play.how != "live":
            await self.give_way()
        self._check()
        self.touched = self.stamp()
        if operation.kind != "instant":  # a clock prompts nothing
            self.unprompted = 0
        if entry.end != "complete":
            self._raise_end(entry)
        return entry.items[0]

    async def stream(
        self,
        operation: Operation,
        site: str,
        arguments: msgspec.Struct,
        args: bytes | None = None,
        normal: Callable[[bytes], bytes] | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Make or play a call that has many results; tails an entry still being recorded.

        `args` are the encoded arguments, where the caller has them; a call equal to another in the
        form that `normal` brings both into is that call.
        """
        play = self._begin(operation, site, canonical(arguments) if args is None else args)
        play.normal = normal
        entry = await self._obtain(play, arguments)
        items, position = entry.items, 0
        gives_way = entry.end != "open" or not self._records
        while True:
            self._check()
            if position < len(items) - entry.withheld:
                item = items[position]
                if self._usage.overflowed:
                    entry.drop(position)
                position += 1
                if item is None:
                    continue  # dropped before it was read
                self.touched = self.stamp()
                self.unprompted = 0
                yield item
                if gives_way:
                    await self.give_way()
            elif entry.end == "open":
                await self._wait(entry.changed)
            else:
                break
        self.touched = self.stamp()
        if entry.end != "complete":
            self._raise_end(entry)

    async def begin(
        self, operation: Operation, site: str, arguments: msgspec.Struct
    ) -> tuple[Play, Entry]:
        """Make or play a call whose caller does not read its items before `outcome`."""
        if len(self.plays) % _CALLS_PER_TURN == _CALLS_PER_TURN - 1:
            await self.give_way()
        play = self._begin(operation, site, canonical(arguments))
        return play, await self._obtain(play, arguments)

    async def outcome(self, entry: Entry) -> list[Any]:
        """Wait until a call that was begun has ended; return its items, or raise how it ended."""
        if entry.end == "open":
            while entry.end == "open":
                if self._usage.overflowed and self._records:
                    entry.drop_unread()
                await self._wait(entry.changed)
                self._check()
        else:
            await self.give_way()
        self._check()
        self.touched = self.stamp()
        self.unprompted = 0
        if entry.end != "complete":
            self._raise_end(entry)
        return [item for item in entry.items if item is not None]

    def performed(self) -> None:
        """Note that the stack has what came of an effect that it has performed itself."""
        self.touched = self.stamp()
        self.unprompted = 0

    def steps(self, run: Callable[[], Coroutine[Any, Any, None]]) -> Coroutine[Any, Any, None]:
        """Return what the task of a run is made of; a session may look at each of its steps."""
        return run()

    async def give_way(self) -> None:
        """Let other tasks run after each item that was there already.

        Without this a recorded flow would be played in one go, and hold up the loop.
        """
        await asyncio.sleep(0)

    def _check(self) -> None:
        if self.fenced:
            raise Fenced(self.name)
        if self._usage.overflowed and not self._records:
            raise TapeCut(self.name)

    async def _wait(self, signal: Signal) -> None:
        self.waiting += 1
        try:
            await signal.wait()
        finally:
            self.waiting -= 1

    def _begin(self, operation: Operation, site: str, args: bytes) -> Play:
        """Note a call."""
        self._check()
        self.touched = self.stamp()
        self._call_bytes += CALL_OVERHEAD + len(args)
        if self._call_bytes > MAX_CALL_BYTES:
            raise TooManyCalls(len(self.plays))
        key, place = (operation, site, args), (operation, site)
        n = self._counts.get(key, 0)
        ordinal = self._ordinals.get(place, 0)
        self._counts[key], self._ordinals[place] = n + 1, ordinal + 1
        play = Play(operation, site, args, self.touched, n, ordinal, self.frames)
        self.plays.append(play)
        return play

    async def _obtain(self, play: Play, arguments: msgspec.Struct) -> Entry:
        """Get the entry of a call: its own or, where the tape has none, as the policy says."""
        how: How = "exact"
        while (entry := self._find(play)) is None:
            if self._records or not self._tape.recording:
                break
            await self._wait(self._tape.changed)
            self._check()
            self.touch()
        try:
            if entry is None and self._records and (self._policy == "live" or self.past_answer):
                self.waiting += 1  # for the world, even if the world answers on the spot
                try:
                    call = self._exchange.perform(play.operation, play.site, arguments, play.args)
                    how, entry = "live", await call
                finally:
                    self.waiting -= 1
            elif entry is None:
                how, entry = self._on_miss(play, arguments)
        except Paused:
            self.plays.remove(play)  # a question is not a call that went wrong
            raise
        play.how, play.entry = how, entry
        if not play.off_tape:
            self._played.add(entry.seq)
        return entry

    def _on_miss(self, play: Play, arguments: msgspec.Struct) -> tuple[How, Entry]:
        """Return how a call is answered that the tape does not have; raises `TapeMiss`."""
        return "nearest", self._stand_in(play, arguments)

    def _find(self, play: Play) -> Entry | None:
        """Find the entry of a call on the tape: by its arguments as they are, or in normal form."""
        entry = self._tape.find(play.operation, play.site, play.args, play.n)
        if entry is not None and entry.seq not in self._played:
            return entry
        if play.normal is not None and (there := self._unplayed(play.operation, play.site)):
            normal, args = play.normal, play.normal(play.args)
            entry = next((one for one in there if normal(one.args) == args), entry)
        if entry is None and play.operation is MODEL_STREAM:
            return self._find_elsewhere(play)
        return entry

    def _find_elsewhere(self, play: Play) -> Entry | None:
        """Find a call of the model at another site.

        A stack's own sites are not those of one that is passed on, as through the gateway.
        """
        if play.site != GATEWAY_SITE:
            there = self._unplayed(MODEL_STREAM, GATEWAY_SITE)
        else:
            calls = [one for one in self._tape.entries if one.operation is MODEL_STREAM]
            there = [
                one for one in calls if one.site != GATEWAY_SITE and one.seq not in self._played
            ]
        args = normal_args_of(play.site, play.args) if there else b""
        return next((one for one in there if normal_args_of(one.site, one.args) == args), None)

    def _unplayed(self, operation: Operation, site: str) -> list[Entry]:
        there = self._tape.at_site(operation, site)
        return [entry for entry in there if entry.seq not in self._played]

    def _stand_in(self, play: Play, arguments: msgspec.Struct) -> Entry:
        """Return the entry that is played instead of a missing one; raises `TapeMiss`."""
        resumes = self._policy == "resume"
        near = self._nearest(play)
        found = self._repeated(play) or near
        if self._policy == "nearest" and found is not None:
            return found
        if not resumes and near is None and isinstance(arguments, AwaitAnswer):
            raise Paused(arguments.hitl_id)  # the tape ends in this question
        code = "resume_mismatch" if resumes else "tape_miss"
        raise TapeMiss(play.label, None if near is None else near.label, code=code)

    def _repeated(self, play: Play) -> Entry | None:
        """Return the entry of the call made just before, if that was the same one.

        A stack that calls twice in a row threw a result away, and gets it once more: the result
        of the next call would lead the run astray. A third time it is a call like any other.
        """
        index = self.plays.index(play)
        before = self.plays[index - 1] if index else play
        keys = [(one.operation, one.site, one.args) for one in (play, before)]
        return before.entry if before.how == "exact" and keys[0] == keys[1] else None

    def _nearest(self, play: Play) -> Entry | None:
        """Return the call of the same ordinal, or the first at that site not played yet."""
        there = self._tape.at_site(play.operation, play.site)
        if play.ordinal < len(there) and there[play.ordinal].seq not in self._played:
            return there[play.ordinal]
        return next((entry for entry in there if entry.seq not in self._played), None)

    def _raise_end(self, entry: Entry) -> NoReturn:
        if entry.fault is not None:
            self.fault = entry.fault
            raise EffectFailed(entry.fault)
        raise TapeCut(entry.label)


@dataclass(slots=True, eq=False)
class _Port:
    """A port of a run: its methods, one for each operation, are made from the table."""

    session: TapeSession


def _method(operation: Operation) -> Callable[..., Any]:
    if operation.streams:
        return lambda self, site, arguments: self.session.stream(operation, site, arguments)
    whole, pack, result = operation.whole, operation.arguments, operation.result

    async def method(self: _Port, site: str, *args: Any, **named: Any) -> Any:
        arguments = args[0] if whole else pack(*args, **named)
        item = await self.session.call(operation, site, arguments)
        if not result:
            return item if result == "" else None
        return getattr(item, result)

    return method


def _port(name: str) -> type[_Port]:
    methods = {op.name: _method(op) for op in OPERATIONS.values() if op.port == name}
    return type(f"Taped{name.capitalize()}", (_Port,), {"__slots__": (), **methods})


_PORTS: Final = {name: _port(name) for name in dict.fromkeys(port for port, _ in OPERATIONS)}
