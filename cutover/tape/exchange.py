"""An exchange: one request, the tape of all that is done for it, and who performs it."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Protocol, Self

from cutover.errors import Paused, TapeOverflowed
from cutover.records import EntryRecord, TapeRecord
from cutover.tape.entry import Call, End, Entry, Fault, Item, Signal, entry_of, entry_record

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

    async def finish(self, entry: Entry) -> None:
        """Store how a write ended."""


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
        self.closed = False
        """Whether it closes, or has closed: what live runs still call is off the tape."""
        self.changed = Signal()
        self.incomplete: dict[str, str] = {}
        """Effects whose results could not be encoded, with the reason."""
        self.dropped: list[Entry] = []
        """Reads that were open when the exchange paused: they are performed again."""
        self.question: str | None = None
        """What the exchange waits for, or has waited for: the question of its last pause."""
        self.answered = True
        """False in a resumed exchange until it has read the answer to `question`."""
        self.overflowed = False
        self.off_tape: Counter[str] = Counter()
        """Calls performed after their run had ended, by name."""
        self._began = self.loop.time()
        self.size = 0
        """Bytes on the tape: what was asked, and what came back."""
        self._tape_bytes = tape_bytes
        self.journal = journal
        self._index: defaultdict[bytes, list[Entry]] = defaultdict(list)
        self._at_end: list[Callable[[], Awaitable[object]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def stamp(self) -> int:
        """Return microseconds since the exchange began."""
        return int((self.loop.time() - self._began) * 1e6)

    def go_on_at(self, at: int) -> None:
        """Let the clock go on from a stamp."""
        self._began = self.loop.time() - at / 1e6

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
        stored = sum(len(item) for _, item in entry.items if isinstance(item, bytes))
        self.grow(len(entry.call.canonical) + stored)
        self.changed.notify()
        return entry

    def go_on(self, entries: Iterable[Entry]) -> None:
        """Put the entries of a stored tape on this one; the clock goes on where they end."""
        for entry in entries:
            self.add(entry)
            newest = max([entry.at, *(at for at, _ in entry.items)])
            self._began = min(self._began, self.loop.time() - newest / 1e6)

    def withdraw(self, entry: Entry, error: BaseException) -> None:
        """Take an entry off the tape; all who read it get `error`."""
        if entry in self.entries:
            self.entries.remove(entry)
            self._index[entry.call.place].remove(entry)
        entry.withdrawn = True
        entry.close("failed", fault_of(error), error)

    def grow(self, size: int) -> None:
        """Count bytes on the tape."""
        self.size += size
        if self.size > self._tape_bytes and not self.overflowed:
            self.overflowed = True
            self.changed.notify()
            log.warning(
                "tape over its limit of %d bytes: served on, not captured", self._tape_bytes
            )

    def take(self, entry: Entry, item: Item) -> bool:
        """Add an item to an entry; return whether it was still open."""
        if entry.end != "open":
            return False
        entry.items.append((self.stamp(), item))
        entry.changed.notify()
        if isinstance(item, bytes):
            self.grow(len(item))
        return True

    def finish_recording(self) -> None:
        """End recording: no further call will be performed, and runs that play stop waiting."""
        self.recording = False
        self.changed.notify()

    # Performing.

    def context(self) -> contextvars.Context:
        """Return the context in which a call is performed: the caller's, without its run.

        What an effect does is not on the tape once more, and tenant, trace and LangGraph's stream
        writer stay.
        """
        context = contextvars.copy_context()
        context.run(current.set, None)
        context.run(performing.set, self)
        return context

    def perform(self, call: Call, perform: Perform) -> Entry:
        """Perform a call in a task of its own and return its entry, which is still open."""
        entry = self.add(Entry(call, self.stamp()))
        entry.task = self._start(self._pump(entry, perform))
        return entry

    async def begin(self, entry: Entry) -> None:
        """Store that a write begins; raises what the journal raises, and withdraws the entry."""
        if self.journal is not None and entry.call.writes:
            try:
                await self.journal.begin(entry.call)
            except asyncio.CancelledError:
                entry.close("cut")
                raise
            except Exception as error:
                self.withdraw(entry, error)
                raise

    async def settle(self, entry: Entry, fault: Fault | None, error: BaseException | None) -> None:
        """End an entry whose performance is over; one that it already has counts."""
        end: End = "failed" if fault else "done"
        try:
            if self.journal is not None and entry.call.writes:
                ended = Entry(entry.call, entry.at, entry.items, end, fault)
                await self.journal.finish(ended if entry.end == "open" else entry)
        except Exception:
            log.exception("write of %r is done, and not in the journal", entry.call.name)
        finally:
            entry.close(end, fault, error)

    def settle_now(self, entry: Entry, fault: Fault | None, error: BaseException | None) -> None:
        """End an entry that blocking code has performed on the event loop's own thread."""
        entry.close("failed" if fault else "done", fault, error)

    async def _pump(self, entry: Entry, perform: Perform) -> None:
        fault: Fault | None = None
        error: BaseException | None = None
        limit = asyncio.timeout(entry.call.seconds)
        try:
            await self.begin(entry)
            async with limit, aclosing(perform()) as items:  # type: ignore[type-var]
                async for item in items:
                    self.take(entry, item)
        except KeyboardInterrupt:
            entry.close("cut")
            raise
        except BaseException as raised:  # noqa: BLE001 - SystemExit, too, ends this call alone
            fault, error = self.failed(entry, raised), raised
            if fault is None:
                return
            if limit.expired():
                fault = Fault("TimeoutError", f"not done within {entry.call.seconds:g} s")
        await self.settle(entry, fault, error)

    def failed(self, entry: Entry, error: BaseException) -> Fault | None:
        """Return how a call failed that raised `error`; None: its entry has been ended here."""
        cancelled = entry.task is not None and entry.task.cancelling()
        if isinstance(error, Paused):
            self.withdraw(entry, error)
        elif cancelled and isinstance(error, asyncio.CancelledError):
            entry.close("cut")
        elif not entry.withdrawn:
            return fault_of(error)
        return None

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work, context=self.context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Ending.

    def at_end(self, callback: Callable[[], Awaitable[object]]) -> None:
        """Run `callback` when the exchange closes, the last registered first; at once if it has."""
        self._at_end.append(callback)
        if self._closing is not None and self._closing.done():
            self.loop.call_soon_threadsafe(lambda: self._start(self._run_at_end()))

    async def pause(self) -> None:
        """Settle for a pause: wait for writes under way, drop the reads that are open."""
        await self._writes_done()
        for entry in [one for one in self.entries if one.end == "open"]:
            self.dropped.append(entry)
            self.withdraw(entry, Paused(self.question or ""))
            entry.cancel()
        self.finish_recording()

    async def aclose(self) -> None:
        """Cancel reads, wait for writes, run the callbacks of `at_end`; idempotent.

        One who is cancelled while it waits leaves the rest to a task.
        """
        if self._closing is None:
            self.closed = True
            self.finish_recording()
            self._closing = self.loop.create_task(self._close(), context=self.context())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        for entry in self.entries:
            if not entry.call.writes:
                entry.cancel()
        await self._writes_done()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=CLOSING_SECONDS)
        await self._run_at_end()

    async def _run_at_end(self) -> None:
        while self._at_end:
            callback = self._at_end.pop()
            try:
                async with asyncio.timeout(CLOSING_SECONDS):
                    await callback()
            except (Exception, SystemExit):
                log.exception("a callback of at_end failed")

    async def _writes_done(self) -> None:
        writes = [entry for entry in self.entries if entry.call.writes]
        if tasks := {entry.task for entry in writes if entry.task is not None}:
            await asyncio.wait(tasks)
        for entry in writes:
            while entry.end == "open":  # a thread performs it, until its deadline at most
                await entry.changed.wait()


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


def tape_record(exchange: Exchange) -> TapeRecord:
    """Return an exchange's tape as it is stored; a read that the pause has dropped is open.

    Raises `TapeOverflowed`.
    """
    if exchange.overflowed:
        raise TapeOverflowed
    entries = [entry_record(entry) for entry in exchange.entries]
    entries += (entry_record(Entry(entry.call, entry.at)) for entry in exchange.dropped)
    return TapeRecord(tuple(entries), tuple(exchange.incomplete), exchange.question)


def load(exchange: Exchange, tape: TapeRecord, writes: Iterable[EntryRecord] = ()) -> None:
    """Put a stored tape on a new exchange, and the `writes` that were made after its pause."""
    records = (*tape.entries, *writes)
    dropped = [one for one in records if one.end == "open" and not one.writes]
    exchange.go_on(entry_of(record) for record in records if record not in dropped)
    exchange.dropped += [entry_of(record) for record in dropped]
    exchange.incomplete.update(dict.fromkeys(tape.incomplete, "stored without it"))
    exchange.question = tape.question
