"""An exchange: one request, the tape of all that is done for it, and who performs it."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from typing import Protocol, Self

from cutover.errors import Paused
from cutover.tape.entry import Call, Entry, Fault, Item, Signal

log = logging.getLogger(__name__)

Perform = Callable[[], AsyncIterator[Item]]
"""Performs a call: yields its items as they come."""

TAPE_BYTES = 32 << 20
"""Bytes of a tape. An exchange that outgrows it is served on, and not captured or taken over."""
CLOSING_SECONDS = 5.0
"""What cancelled reads and the callbacks of `at_end` may take before they are left behind."""

performing: ContextVar[Exchange | None] = ContextVar("performing", default=None)
"""The exchange for which the code that runs now performs a call."""
current: ContextVar[object] = ContextVar("run", default=None)
"""The `Run` that the code that runs now belongs to; read it with `cutover.tape.run.current_run`."""


class Journal(Protocol):
    """Where a resumed exchange stores each write before and after it is performed."""

    async def begin(self, call: Call) -> None:
        """Store that a write begins."""
        ...

    async def finish(self, entry: Entry) -> None:
        """Store how a write ended."""
        ...


class Exchange:
    """One request and all that is done for it; runs read its tape, it alone performs.

        async with Exchange() as exchange:
            with Run(exchange, "legacy").current():
                ...                                     # effects and requests go on the tape
            with Run(exchange, "graph", policy="play").current():
                ...                                     # and are found there

    Leaving the block cancels reads, waits for writes until their deadlines, and runs what effects
    have registered with `at_end`, such as the release of locks.
    """

    def __init__(self, *, tape_bytes: int = TAPE_BYTES, journal: Journal | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.entries: list[Entry] = []
        self.recording = True
        self.changed = Signal()
        self.incomplete: dict[str, str] = {}
        """Effects whose results could not be encoded, with the reason."""
        self.dropped: Counter[bytes] = Counter()
        """Keys of reads that were open when the exchange paused: they are performed again."""
        self.question: str | None = None
        """What the exchange waits for, or has waited for: the question of its last pause."""
        self.answered = True
        """False in a resumed exchange until it has read the answer to `question`."""
        self.overflowed = False
        self.off_tape: Counter[str] = Counter()
        """Calls performed after their run had ended, by name."""
        self._began = self.loop.time()
        self._size = 0
        self._tape_bytes = tape_bytes
        self.journal = journal
        self._index: defaultdict[bytes, list[Entry]] = defaultdict(list)
        self._at_end: list[Callable[[], Awaitable[object]]] = []
        self._tasks: set[asyncio.Task[object]] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def stamp(self) -> int:
        """Return microseconds since the exchange began."""
        return int((self.loop.time() - self._began) * 1e6)

    # The tape.

    def at(self, call: Call) -> list[Entry]:
        """Return the entries of the same name and key, in order."""
        return self._index.get(call.place, [])

    def named(self, name: str) -> list[Entry]:
        """Return the entries of an effect, in order."""
        return [entry for entry in self.entries if entry.call.name == name]

    def add(self, entry: Entry) -> Entry:
        """Put an entry on the tape."""
        self.entries.append(entry)
        self._index[entry.call.place].append(entry)
        self.grow(len(entry.call.canonical))
        self.changed.notify()
        return entry

    def remove(self, entry: Entry) -> None:
        """Take an entry off the tape."""
        self.entries.remove(entry)
        self._index[entry.call.place].remove(entry)

    def grow(self, size: int) -> None:
        """Count bytes on the tape."""
        self._size += size
        if self._size > self._tape_bytes and not self.overflowed:
            self.overflowed = True
            log.warning(
                "tape over its limit of %d bytes: served on, not captured", self._tape_bytes
            )

    def finish_recording(self) -> None:
        """Say that no further call will be performed: runs that play stop waiting for one."""
        self.recording = False
        self.changed.notify()

    # Performing.

    async def perform(self, call: Call, perform: Perform) -> Entry:
        """Perform a call in a task of its own and return its entry, which is still open.

        The task has the caller's context without its run: what an effect does is not on the tape
        once more, and tenant, trace and LangGraph's stream writer stay.
        """
        entry = await self.lend(call)
        context = contextvars.copy_context()
        context.run(current.set, None)
        context.run(performing.set, self)
        task = self.loop.create_task(self._pump(entry, perform), context=context)
        entry.task = task
        self._keep(task)
        return entry

    async def lend(self, call: Call) -> Entry:
        """Return an open entry for a call that its caller performs, and ends with `settle`."""
        entry = self.add(Entry(call, self.stamp()))
        if self.journal is not None and call.writes:
            try:
                await self.journal.begin(call)
            except BaseException as error:
                self.remove(entry)
                entry.close("failed", fault_of(error), error)
                raise
        return entry

    async def settle(self, entry: Entry, fault: Fault | None, error: BaseException | None) -> None:
        """End an entry that its caller performed or whose pump is done."""
        if self.journal is not None and entry.call.writes:
            done = Entry(entry.call, entry.at, entry.items, "failed" if fault else "done", fault)
            await self.journal.finish(done)
        entry.close("failed" if fault else "done", fault, error)

    async def _pump(self, entry: Entry, perform: Perform) -> None:
        fault: Fault | None = None
        error: BaseException | None = None
        limit = asyncio.timeout(entry.call.seconds)
        try:
            async with limit, aclosing(perform()) as items:  # type: ignore[type-var]
                async for item in items:
                    self.take(entry, item)
        except asyncio.CancelledError:
            entry.close("cut")
            return
        except Paused as paused:
            self.remove(entry)
            entry.close("failed", Fault("Paused", paused.question), paused)
            return
        except TimeoutError as late:
            message = f"not done within {entry.call.seconds:g} s" if limit.expired() else str(late)
            fault, error = Fault("TimeoutError", message), late
        except KeyboardInterrupt:
            entry.close("cut")
            raise
        except BaseException as raised:  # noqa: BLE001 - SystemExit, too, ends this call alone
            fault, error = fault_of(raised), raised
        await self.settle(entry, fault, error)

    def take(self, entry: Entry, item: Item) -> None:
        """Add an item to an open entry."""
        entry.append(self.stamp(), item)
        if isinstance(item, bytes):
            self.grow(len(item))

    def at_end(self, callback: Callable[[], Awaitable[object]]) -> None:
        """Run `callback` when the exchange closes, the last registered first."""
        self._at_end.append(callback)

    # Ending.

    async def pause(self) -> None:
        """Settle for a pause: wait for writes under way, drop the reads that are open."""
        await self._writes_done()
        for entry in [one for one in self.entries if one.end == "open"]:
            self.dropped[entry.call.place] += 1
            self.remove(entry)
            entry.cancel()
        self.finish_recording()

    async def aclose(self) -> None:
        """Cancel reads, wait for writes, run the callbacks of `at_end`; idempotent."""
        if self._closed:
            return
        self._closed = True
        self.finish_recording()
        for entry in self.entries:
            if entry.end == "open" and not entry.call.writes:
                entry.cancel()
        await self._writes_done()
        while self._at_end:
            callback = self._at_end.pop()
            try:
                async with asyncio.timeout(CLOSING_SECONDS):
                    await callback()
            except Exception:
                log.exception("a callback of at_end failed")
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=CLOSING_SECONDS)

    async def _writes_done(self) -> None:
        writes = {
            entry.task for entry in self.entries if entry.call.writes and entry.task is not None
        }
        lent = [e for e in self.entries if e.call.writes and e.task is None and e.end == "open"]
        for entry in lent:
            try:
                async with asyncio.timeout(entry.call.seconds):
                    while entry.end == "open":
                        await entry.changed.wait()
            except TimeoutError:
                entry.close("failed", Fault("TimeoutError", "its thread did not come back"))
        if writes:
            await asyncio.wait(writes)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def fault_of(error: BaseException) -> Fault:
    """Return how a call failed that raised `error`; `@effect` has put more on those it declares."""
    stored = getattr(error, "cutover_fault", None)
    return stored if isinstance(stored, Fault) else Fault(type(error).__name__, str(error))


def at_end(callback: Callable[[], Awaitable[object]]) -> None:
    """Run `callback` when the exchange closes for which an effect is being performed.

    Outside an exchange it does nothing: what is taken there is its caller's to release.
    """
    if (exchange := performing.get()) is not None:
        exchange.at_end(callback)
