"""A run: one stack handling one request, finding its calls on the tape."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec

from cutover.errors import (
    Control,
    EffectFailed,
    Failed,
    Fenced,
    Outcome,
    Paused,
    PlayedOutside,
    ResumeMismatch,
    TapeMiss,
    WriteDiffers,
    outcome_of,
)
from cutover.tape.entry import Call, Entry, Fault, Item
from cutover.tape.exchange import Exchange, Perform, current, fault_of, performing

T = TypeVar("T")

HUMAN_ANSWER = "human.answer"
"""The effect that reads a human's answer, and raises `Paused` while there is none."""
NEAREST_SHOWN = 3
ABANDONED_SECONDS = 0.05
"""How long an open read stays without a reader: a crashed run is fenced within that time."""
TURN_EVERY = 16
"""Items that a reader takes from a finished entry before it lets the event loop turn."""

Policy = Literal["live", "play"]
How = Literal["live", "tape", "nearest"]

playing: set[Run] = set()
"""Runs of this process that play and have not ended."""
outside: Counter[str] = Counter()
"""Calls made without a run while a tape was played, by name: code that lost its context."""


class Play(msgspec.Struct, frozen=True):
    """A call as one run made it: the entry that answered it, and whether it is the very one."""

    call: Call
    how: How
    entry: Entry


class Run:
    """One stack handling one request: `live` performs what is not on the tape, `play` never does.

    `ended` says how it ended, whatever the stack does with exceptions: a miss, a pause and a fence
    are recorded here first, and every later call of such a run is refused.
    """

    def __init__(
        self, exchange: Exchange, stack: str, role: str = "serving", policy: Policy = "live"
    ) -> None:
        self.exchange, self.stack, self.role, self.policy = exchange, stack, role, policy
        self.ended: Outcome | None = None
        self.fenced = False
        self.now = 0
        """Stamp of the newest item this run has read, in microseconds."""
        self.waiting = 0
        """Reads that wait for the tape: such a run is not stalled, the world is slow."""
        self.plays: list[Play] = []
        self.nodes: dict[str, float] = {}
        """Seconds spent in each node or step of the flow, by name."""
        self.behind: Callable[[], bool] = lambda: False
        """Whether the client has more text than this run has produced; set by a takeover."""
        self._matched: set[int] = set()
        self._inherited = frozenset(id(e) for e in exchange.entries if e.call.writes)
        self._refusing = False
        self._reading: set[Entry] = set()
        if policy == "play":
            playing.add(self)

    def __repr__(self) -> str:
        return f"<Run {self.stack} {self.role} {self.policy} {self.ended}>"

    @contextmanager
    def current(self) -> Iterator[Run]:
        """Make this the run that effects and transports belong to, within the block."""
        before = current.get()
        current.set(self)
        try:
            yield self
        finally:
            current.set(before)

    def end(self, outcome: Outcome) -> None:
        """Record how the run ended; the first outcome counts."""
        if self.ended is None:
            self.ended = outcome
        if self.policy == "play":
            playing.discard(self)
            self._refusing = True

    def fence(self) -> None:
        """Refuse every call from now on: another run takes this one's place.

        Reads that this run has open stay open for its successor.
        """
        self.fenced = self._refusing = True
        self.end(Failed("fenced"))
        for entry in self._reading:
            entry.changed.notify()

    @property
    def over(self) -> bool:
        """Whether calls are performed off the tape: a live run that ended by itself."""
        return self.ended is not None and not self._refusing

    def spend(self, node: str, seconds: float) -> None:
        """Note the time a node of the flow took; the times of several rounds add up."""
        self.nodes[node] = self.nodes.get(node, 0.0) + seconds

    # Finding calls.

    async def call(self, call: Call, perform: Perform) -> AsyncGenerator[Item, None]:
        """Yield the items of a call, found on the tape or performed.

        Raises the `Control` that stops the run, or `CallFailed`.
        """
        entry = await self._find(call)
        if entry is None:
            entry = await self.exchange.perform(call, perform)
            self._note(call, "live", entry)
        async for item in self.read(entry):
            yield item

    def call_blocking(
        self, call: Call, perform: Callable[[], Iterator[Item]]
    ) -> Generator[Item, None, None]:
        """Yield the items of a call of blocking code, which performs it itself where it is due.

        In a thread it waits for the event loop. On the loop's own thread it cannot: what is on the
        tape is read where it has ended, and `CallFailed` is raised where it is still open.
        """
        exchange = self.exchange
        if asyncio._get_running_loop() is exchange.loop:  # noqa: SLF001 - the one that does not raise
            entry = self._locate(call) or self._missed(call)
            if entry is None:
                entry = exchange.add(Entry(call, exchange.stamp()))
                self._note(call, "live", entry)
                yield from self._perform_here(entry, perform, lambda step: step())
            elif entry.end == "open":
                raise CallFailed(entry)
            else:
                yield from _waited(self.read(entry), _run_now)
            return
        entry, due = self._on_loop(self._obtain(call))
        if due:
            soon = exchange.loop.call_soon_threadsafe
            yield from self._perform_here(entry, perform, soon)
        else:
            yield from _waited(self.read(entry), self._on_loop)

    async def _obtain(self, call: Call) -> tuple[Entry, bool]:
        """Return the entry of a call, and whether its caller is to perform it."""
        entry = await self._find(call)
        if entry is not None:
            return entry, False
        entry = await self.exchange.lend(call)
        self._note(call, "live", entry)
        late = Fault("TimeoutError", f"not done within {call.seconds:g} s")
        self.exchange.loop.call_later(call.seconds, entry.close, "failed", late)
        return entry, True

    def _perform_here(
        self,
        entry: Entry,
        perform: Callable[[], Iterator[Item]],
        tell: Callable[[Callable[[], None]], object],
    ) -> Generator[Item, None, None]:
        """Perform a call in this thread; `tell` runs a step on the loop."""
        exchange = self.exchange
        fault: Fault | None = None
        error: BaseException | None = None
        try:
            for item in perform():
                if entry.end != "open":  # its deadline is over, or the exchange
                    break
                tell(partial(exchange.take, entry, item))
                self.now = exchange.stamp()
                yield item
        except GeneratorExit:
            tell(partial(entry.close, "cut"))
            raise
        except BaseException as raised:  # noqa: BLE001 - as in a pump: it ends this call alone
            fault, error = fault_of(raised), raised
        if exchange.journal is not None and entry.call.writes:
            self._on_loop(exchange.settle(entry, fault, error))
        else:
            tell(partial(entry.close, "failed" if fault else "done", fault, error))
        if fault is not None:
            raise CallFailed(entry, fault) from error

    def _on_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the exchange's loop and wait for it in this thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.exchange.loop).result()

    async def _find(self, call: Call) -> Entry | None:
        """Return the entry that answers a call, waiting for it in a play; None: it is due."""
        entry = self._locate(call)
        while entry is None and self.policy == "play" and self.exchange.recording:
            self.waiting += 1
            try:
                await self.exchange.changed.wait()
            finally:
                self.waiting -= 1
            entry = self._locate(call)
        return entry or self._missed(call)

    def _locate(self, call: Call) -> Entry | None:
        """Return the next entry of a call that this run has not had.

        Entries whose keys are equal because a date or an id was folded are told apart, where they
        can be, by what was really asked.
        """
        if self._refusing:
            raise Fenced(self.stack)
        left = [one for one in self.exchange.at(call) if id(one) not in self._matched]
        same = (one for one in left if one.call.canonical == call.canonical)
        entry = next(same, left[0] if left else None)
        if entry is not None:
            self._note(call, "tape", entry)
        return entry

    def _missed(self, call: Call) -> Entry | None:
        """Return what answers a call that is not on the tape; None: it is to be performed."""
        if self.policy == "play":
            return self._nearest(call)
        if not self.exchange.answered and not self._again(call):
            if call.name != HUMAN_ANSWER:
                raise self._stopped(ResumeMismatch(call.name))
            self.exchange.answered = True
            return None
        if call.writes and self._unmatched(call):
            raise self._stopped(WriteDiffers(call.name))
        if call.model and self.behind() and self.exchange.named(call.name):
            return self._nearest(call)
        return None

    def _again(self, call: Call) -> bool:
        """Whether a call is a read that the pause had cut off."""
        self.exchange.dropped[call.place] -= 1
        return self.exchange.dropped[call.place] >= 0

    def _nearest(self, call: Call) -> Entry:
        """Return the entry of the name that stands where this call does, and note the miss."""
        if call.name == HUMAN_ANSWER and self.exchange.question is not None:
            raise self._stopped(Paused(self.exchange.question))
        entries = self.exchange.named(call.name)
        if not entries:
            names = dict.fromkeys(entry.call.name for entry in self.exchange.entries)
            raise self._stopped(TapeMiss(call.name, tuple(names)[-NEAREST_SHOWN:]))
        before = sum(play.call.name == call.name for play in self.plays)
        entry = entries[min(before, len(entries) - 1)]
        self._note(call, "nearest", entry)
        return entry

    def _unmatched(self, call: Call) -> bool:
        """Whether a write of this name was made before this run, which this run has not made."""
        return any(
            id(entry) in self._inherited and id(entry) not in self._matched
            for entry in self.exchange.named(call.name)
        )

    def _note(self, call: Call, how: How, entry: Entry) -> None:
        if how != "nearest":
            self._matched.add(id(entry))
        self.plays.append(Play(call, how, entry))

    def _stopped(self, control: Control) -> Control:
        """Record a control exception as the end of this run, and return it."""
        if isinstance(control, Paused) and self.policy == "live":
            self.exchange.question = control.question
        self.end(outcome_of(control))
        self._refusing = True
        return control

    # Reading entries.

    async def read(self, entry: Entry) -> AsyncGenerator[Item, None]:
        """Yield an entry's items as they come; raises `CallFailed` where it failed.

        An open read whose last reader leaves is cancelled, a moment later: where the reader left
        because its stack crashed, the run is fenced by then, and the read stays for its successor.
        """
        entry.readers += 1
        self._reading.add(entry)
        position = 0
        try:
            while True:
                while position < len(entry.items):
                    if self._refusing:
                        raise Fenced(self.stack)
                    self.now, item = entry.items[position]
                    position += 1
                    yield item
                    if self.exchange.overflowed:
                        entry.items[position - 1] = (self.now, b"")
                    if position % TURN_EVERY == 0:
                        await asyncio.sleep(0)
                if self._refusing:
                    raise Fenced(self.stack)
                if entry.end != "open":
                    break
                self.waiting += 1
                try:
                    await entry.changed.wait()
                finally:
                    self.waiting -= 1
        finally:
            self._leave(entry)
        if isinstance(entry.error, Paused):
            raise self._stopped(entry.error)
        if entry.end != "done":
            raise CallFailed(entry)

    def _leave(self, entry: Entry) -> None:
        self._reading.discard(entry)
        entry.readers -= 1
        if entry.end == "open" and not entry.call.writes and not self._refusing:
            self.exchange.loop.call_later(ABANDONED_SECONDS, self._abandon, entry)

    def _abandon(self, entry: Entry) -> None:
        if entry.readers == 0 and not self._refusing:
            entry.cancel()


class CallFailed(EffectFailed):
    """A call ended with a fault; `@effect` and the transport raise what their callers expect."""

    def __init__(self, entry: Entry, fault: Fault | None = None) -> None:
        self.fault = fault or entry.fault or Fault("Cut", "its last reader left before the end")
        self.error = entry.error
        super().__init__(entry.call.name, self.fault.kind, self.fault.message)


def _waited(
    items: AsyncGenerator[Item, None], wait: Callable[[Coroutine[Any, Any, Item]], Item]
) -> Generator[Item, None, None]:
    """Yield from a coroutine generator in blocking code; `wait` runs one step of it."""
    try:
        while True:
            try:
                yield wait(_next(items))
            except _Exhausted:
                return
    finally:
        wait(_closed(items))


class _Exhausted(Exception):
    """The generator has ended; StopAsyncIteration cannot leave a future."""


async def _next(items: AsyncGenerator[Item, None]) -> Item:
    try:
        return await anext(items)
    except StopAsyncIteration:
        raise _Exhausted from None


async def _closed(items: AsyncGenerator[Item, None]) -> Item:
    await items.aclose()
    return b""


def _run_now(coroutine: Coroutine[Any, Any, Item]) -> Item:
    """Run a coroutine that does not wait for anything, on the loop's own thread."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as done:
            item: Item = done.value
            return item


def current_run() -> Run | None:
    """Return the run that the code that runs now belongs to."""
    run = current.get()
    return run if isinstance(run, Run) else None


def run_for(name: str, *, writes: bool) -> Run | None:
    """Return the run whose tape a call of the effect `name` goes on; None: it is transparent.

    What a live run does after its end is performed off the tape, and counted. Without a run,
    writes are refused while this process plays a tape, and reads are counted in `outside`:
    somewhere a context was lost. Raises `PlayedOutside`.
    """
    run = current_run()
    if run is not None:
        if run.over:
            run.exchange.off_tape[name] += 1
            return None
        return run
    if playing and performing.get() is None:
        if writes:
            raise PlayedOutside(name)
        outside[name] += 1
    return None


@contextmanager
def timed(node: str) -> Iterator[None]:
    """Note on the current run what a step of the flow takes."""
    began = time.perf_counter()
    try:
        yield
    finally:
        if (run := current_run()) is not None:
            run.spend(node, time.perf_counter() - began)


def moment() -> float:
    """Return seconds on the tape's clock: the stamp of the newest item the current run has read.

    Outside a run it is a monotonic clock.
    """
    run = current_run()
    return time.monotonic() if run is None else run.now / 1e6
