"""A run: one stack handling one request, finding its calls on the tape."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Literal, TypeVar
from weakref import WeakSet

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
    TapeOverflowed,
    WriteDiffers,
    WriteFenced,
    outcome_of,
)
from cutover.tape.entry import Call, Entry, Fault, Item, Signal
from cutover.tape.exchange import Exchange, Perform, current, performing

T = TypeVar("T")

HUMAN_ANSWER = "human.answer"
"""The effect that reads a human's answer, and raises `Paused` while there is none."""
NEAREST_SHOWN = 3
ABANDONED_SECONDS = 0.05
ABANDONED_TURNS = 40
"""How long an open read stays without a reader: a crashed run is fenced within that time, and where
the event loop is busy within so many of its turns; a graph that is closed takes a dozen."""
TURN_EVERY = 16
"""Items that a reader takes from a finished entry before it lets the event loop turn."""
COUNTS_BYTES = 4_096
"""Of an item that has counts of tokens, at most."""

STEP_US, STEP_TURNS = 100_000, 16
"""A run reads what was on the tape before it, and came so many microseconds later, only when the
loop has turned so often: what a graph, which runs ahead of its events, made of the items before
bears their stamp then. One that is not live does so with all."""

Policy = Literal["live", "play", "fork"]
How = Literal["live", "tape", "nearest"]

playing: WeakSet[Run] = WeakSet()
"""Runs of this process that play and have not ended; one that is forgotten leaves by itself."""
outside: Counter[str] = Counter()
"""Calls made without a run while a tape was played, by name: code that lost its context."""
off_tape: Counter[str] = Counter()
"""Calls of this process that were performed after their run had ended, by name."""


class Fork(msgspec.Struct, frozen=True):
    """Where a play becomes live, its n-th model call; what is asked then, and may be written."""

    at: int
    model: str = ""
    performs: frozenset[str] = frozenset()


class Play(msgspec.Struct, frozen=True):
    """A call as one run made it: the entry that answered it, and whether it is the very one."""

    call: Call
    how: How
    entry: Entry


class Run:
    """One stack handling one request: `live` performs what is not on the tape, `play` never does.

    `fork` plays up to a call of a model, and performs from there on what is not on the tape.

    `ended` says how it ended, whatever the stack does with exceptions: a miss, a pause and a fence
    are recorded here first, and every later call of such a run is refused.
    """

    def __init__(
        self, exchange: Exchange, stack: str, role: str = "serving", policy: Policy = "live"
    ) -> None:
        self.exchange, self.stack, self.role, self.policy = exchange, stack, role, policy
        self.fork = Fork(1)
        """Where it becomes live, if that is its policy; `forked`: it is."""
        self.forked = False
        self.ended: Outcome | None = None
        self.fenced = False
        self.now = 0
        """Stamp of the newest item this run has read, in microseconds."""
        self.waiting = 0
        """Reads that wait for the tape: such a run is not stalled, the world is slow."""
        self.not_before = 0.0
        """Until when, in the exchange loop's time, a provider told it to wait: no stall either."""
        self.plays: list[Play] = []
        self.nodes: dict[str, float] = {}
        """Seconds spent in each node or step of the flow, by name."""
        self.behind: Callable[[], bool] = lambda: False
        """Whether the client has more text than this run has produced; set by a takeover."""
        self.escaped: Counter[str] = Counter()
        """Tools that ran without a call on the tape, by name: what they do, shadows do too."""
        self.on_call: Callable[[], object] = lambda: None
        """Called in the context of each call; set by what counts `escaped`."""
        self.on_refusing: Callable[[], object] = lambda: None
        """Called when `refusing` becomes true; set by what answers for runs that are forgotten."""
        self.turn: Callable[[], Awaitable[object]] | None = None
        """Awaited before each call of a play and now and then in a long one: others go first."""
        self.refusing = False
        """Whether every further call is refused: it is fenced, was stopped, or has played."""
        self._steps_at = STEP_US
        self._crashed = False
        self._models_asked = 0
        self._matched: set[Entry] = set()
        self._inherited = frozenset(exchange.entries)
        if policy != "live":
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
        if self.policy != "live":
            playing.discard(self)
            self._refuse()

    def keep_reads(self) -> None:
        """Keep open reads for a successor: the stack has crashed, as is told behind its frames."""
        self._crashed = True

    def fence(self) -> None:
        """Refuse every call from now on: another run takes this one's place, and its open reads."""
        self.fenced = True
        self.end(Failed("fenced"))
        self._refuse()

    def _refuse(self) -> None:
        self.refusing = True
        self.on_refusing()
        self.exchange.changed.notify()
        for entry in self.exchange.entries:
            entry.changed.notify()

    @property
    def over(self) -> bool:
        """Whether calls are performed off the tape: a live run that ended by itself."""
        ended = self.ended is not None or (self.exchange.closed and self.policy == "live")
        return ended and not self.refusing

    # Finding calls.

    def asked_anew(self, call: Call, content: bytes) -> bytes | None:
        """Count a request to a model; return the body that a fork sends, None: the tape answers."""
        if self.policy != "fork" or not call.model or call.name == "model.embeddings":
            return None
        self._models_asked += 1
        if self._models_asked >= self.fork.at and not self.forked:
            self.forked = True
            self.exchange.go_on_at(self.now)  # the answers come behind what has been read
        if not self.forked or not self.fork.model:
            return content if self.forked else None
        fields = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        return msgspec.json.encode(fields | {"model": self.fork.model})

    def call(self, call: Call, perform: Perform) -> AsyncGenerator[Item, None]:
        """Return a generator of the items of a call, found on the tape or performed.

        It raises the `Control` that stops the run, or `CallFailed`. It may be used on any event
        loop; the call is performed on the exchange's.
        """
        items = self._call(call, perform)
        here = asyncio.get_running_loop() is self.exchange.loop
        return items if here else across(items, self.exchange.loop)

    async def _call(self, call: Call, perform: Perform) -> AsyncGenerator[Item, None]:
        if self.turn is not None:
            await self.turn()
        entry = await self.find(call)
        if entry is None:
            entry = self.exchange.perform(call, perform)
            self.note(call, "live", entry)
        async with aclosing(self.read(entry)) as items:
            async for item in items:
                yield item

    async def find(self, call: Call) -> Entry | None:
        """Return the entry that answers a call, waiting for it in a play; None: it is due."""
        entry = self.locate(call)
        while entry is None and self.policy == "play" and self.exchange.recording:
            await self._wait(self.exchange.changed)
            entry = self.locate(call)
        return entry or self.missed(call)

    async def _wait(self, signal: Signal) -> None:
        self.waiting += 1
        try:
            await signal.wait()
        finally:
            self.waiting -= 1

    def locate(self, call: Call) -> Entry | None:
        """Return the next entry of a call that this run has not had.

        Entries whose keys are equal because a date or an id was folded are told apart, where they
        can be, by what was really asked.
        """
        self.check()
        if call.anew:
            return None
        left = [one for one in self.exchange.at(call) if one not in self._matched]
        same = (one for one in left if one.call.canonical == call.canonical)
        entry = next(same, left[0] if left else None)
        if entry is not None:
            self.note(call, "tape", entry)
        return entry

    def check(self) -> None:
        """Raise where the run may not go on: `Fenced`, or `TapeOverflowed` in a play."""
        if self.refusing:
            raise Fenced(self.stack)
        if self.exchange.overflowed and self.policy != "live":
            raise self.stopped(TapeOverflowed())

    def missed(self, call: Call) -> Entry | None:
        """Return what answers a call that is not on the tape; None: it is to be performed."""
        if self.policy != "live" and not self.forked:
            return self._nearest(call)
        if self.forked:
            if call.writes and call.name not in self.fork.performs:
                raise self.stopped(WriteFenced(call.name))
            return None
        if not self.exchange.answered and not self._again(call):
            if call.name != HUMAN_ANSWER:
                raise self.stopped(ResumeMismatch(call.name))
            self.exchange.answered = True
            return None
        if call.writes and self._unmatched(call):
            raise self.stopped(WriteDiffers(call.name))
        # A graph runs ahead of its frames: only where its predecessor has asked the model for
        # something that it has not asked is this call another wording of that.
        if call.model and self.behind() and self._unmatched(call):
            return self._nearest(call)
        return None

    def _again(self, call: Call) -> bool:
        """Whether a call is a read that the pause had cut off."""
        for entry in self.exchange.dropped:
            if entry.call.place == call.place:
                self.exchange.dropped.remove(entry)
                return True
        return False

    def _nearest(self, call: Call) -> Entry:
        """Return the entry of the name that stands where this call does, and note the miss."""
        if call.name == HUMAN_ANSWER and self.exchange.question is not None:
            raise self.stopped(Paused(self.exchange.question))
        entries = self.exchange.named(call.name)
        if not entries:
            self.note(call, "nearest", Entry(call, self.now, end="cut"))
            names = dict.fromkeys(entry.call.name for entry in self.exchange.entries)
            raise self.stopped(TapeMiss(call.name, tuple(names)[-NEAREST_SHOWN:]))
        before = sum(play.call.name == call.name for play in self.plays)
        entry = entries[min(before, len(entries) - 1)]
        self.note(call, "nearest", entry)
        return entry

    def _unmatched(self, call: Call) -> bool:
        """Whether a run before this one has made a call of the name that this one has not."""
        return any(one.call.name == call.name for one in self._inherited - self._matched)

    def note(self, call: Call, how: How, entry: Entry) -> None:
        """Note a call of this run and what answers it."""
        if how != "nearest" or self.policy == "live":
            self._matched.add(entry)
        self.plays.append(Play(call, how, entry))
        self.on_call()

    def played(self, call: Call) -> bool:
        """Whether the tape has answered a call of this run."""
        return not any(play.call is call and play.how == "live" for play in self.plays)

    def stopped(self, control: Control) -> Control:
        """Record a control exception as the end of this run, and return it."""
        if isinstance(control, Paused) and self.policy == "live":
            self.exchange.question = control.subject
        self.end(outcome_of(control))
        self._refuse()
        return control

    # Reading entries.

    async def read(self, entry: Entry) -> AsyncGenerator[Item, None]:
        """Yield an entry's items as they come; raises `CallFailed` where it failed.

        An open read whose last reader leaves is cancelled, a moment later: where the reader left
        because its stack crashed, the run is fenced by then, and the read stays for its successor.
        """
        if entry.spent:
            raise self.stopped(TapeOverflowed())
        self.occupy(entry)
        position = 0
        steps = self.policy != "live" or entry in self._inherited
        try:
            while True:
                while position < len(entry.items):
                    if steps and entry.items[position][0] >= self._steps_at:
                        await self._step(entry.items[position][0])
                    self.check()
                    at, item = entry.items[position]
                    self.now = max(at, self.now) if self.forked else at  # of older entries, too
                    position += 1
                    yield item
                    if self.exchange.overflowed and entry.readers == [self] and not self.refusing:
                        entry.spent = True
                        if not (
                            isinstance(item, bytes)
                            and len(item) < COUNTS_BYTES
                            and b'"usage"' in item  # the log counts tokens
                        ):
                            entry.items[position - 1] = (self.now, b"")
                    if position % TURN_EVERY == 0:
                        await (self.turn() if self.turn else asyncio.sleep(0))
                self.check()
                if entry.end != "open":
                    break
                await self._wait(entry.changed)
        finally:
            self.leave(entry)
        self.check_end(entry)

    def read_now(self, entry: Entry) -> Iterator[Item]:
        """Yield the items of an entry that has ended; raises as `read` does."""
        if entry.spent:
            raise self.stopped(TapeOverflowed())
        for at, item in entry.items:
            self.check()
            self.now = max(at, self.now) if self.forked else at
            yield item
        self.check_end(entry)

    async def _step(self, at: int) -> None:
        """Let what was made of earlier items go out, before one of a later moment is read."""
        self._steps_at = at + STEP_US
        for _ in range(STEP_TURNS):
            await asyncio.sleep(0)

    def check_end(self, entry: Entry) -> None:
        """Raise how an entry ended, unless it is done: `CallFailed`, or why it is off the tape."""
        if entry.withdrawn and entry.error is not None:
            raise self.stopped(entry.error) if isinstance(entry.error, Control) else entry.error
        if entry.end != "done":
            raise CallFailed(entry)

    def occupy(self, entry: Entry) -> None:
        """Be a reader of an entry: while it has one, it is not cancelled."""
        if self.policy == "live":
            entry.readers = [run for run in entry.readers if not run.fenced]
            entry.resume()
        entry.readers.append(self)

    def leave(self, entry: Entry) -> None:
        """Be no reader of an entry any longer, of an open read in a moment."""
        if entry.end == "open" and not entry.call.writes:
            self.exchange.loop.call_later(ABANDONED_SECONDS, self.release, entry, ABANDONED_TURNS)
        else:
            self.release(entry)

    def release(self, entry: Entry, turns: int = 0) -> None:
        """Be no reader of an entry any longer, in so many turns of the event loop.

        An open read without a reader is cancelled.
        """
        if turns:
            self.exchange.loop.call_soon(self.release, entry, turns - 1)
            return
        keeps = self.policy == "live" and (self.fenced or self._crashed)
        if keeps and entry.end == "open":
            return
        if self in entry.readers:
            entry.readers.remove(self)
        if not entry.readers and not entry.call.writes:
            entry.cancel()


class CallFailed(EffectFailed):
    """A call ended with a fault; `@effect` and the transport raise what their callers expect."""

    def __init__(self, entry: Entry, fault: Fault | None = None) -> None:
        self.fault = fault or entry.fault or Fault("Cut", "its last reader left before the end")
        self.error = entry.error
        super().__init__(entry.call.name, self.fault.kind, self.fault.message)


async def step(items: AsyncGenerator[Item, None]) -> Item | None:
    """Return the next item, None behind the last: StopAsyncIteration cannot leave a future."""
    return await anext(items, None)


async def across(
    items: AsyncGenerator[Item, None], loop: asyncio.AbstractEventLoop
) -> AsyncGenerator[Item, None]:
    """Yield the items of a generator that belongs to `loop`, on another loop."""

    def there(work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    try:
        while (item := await there(step(items))) is not None:
            yield item
    finally:
        await there(items.aclose())


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
            off_tape[name] += 1
            return None
        return run
    if playing and performing.get() is None:
        if writes:
            raise PlayedOutside(name)
        outside[name] += 1
    return None


@contextmanager
def timed(node: str) -> Iterator[None]:
    """Note on the current run what a step of the flow takes; several rounds add up."""
    began = time.perf_counter()
    try:
        yield
    finally:
        if (run := current_run()) is not None:
            run.nodes[node] = run.nodes.get(node, 0.0) + time.perf_counter() - began


def moment() -> float:
    """Return seconds on the tape's clock: the stamp of the newest item the current run has read.

    Outside a run it is a monotonic clock.
    """
    run = current_run()
    return time.monotonic() if run is None else run.now / 1e6
