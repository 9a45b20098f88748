"""An exchange: one request and everything done for it. It owns the tape and its pumps."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, NoReturn, Protocol

import msgspec
from msgspec.structs import replace

from contract.errors import CutoverError, EffectFailed, Fault, Paused
from contract.operations import HUMAN_ANSWER, LOCK_ACQUIRE, LOCK_RELEASE, TOOLS_RUN, Operation
from contract.ports import Effects, Model
from contract.stores import Acquire, Release, Released
from effects.loop_time import limit
from effects.tape.tape import Entry, Tape
from effects.tasks import ANYTHING, CANCELLED, contain, exchange_context

log = logging.getLogger(__name__)


class Journal(Protocol):
    """Stores the writes of one exchange. Neither method raises but to be cancelled."""

    async def begin(self, entry: Entry, /) -> bool:
        """Store that a write begins, and what came before it; False where it must not begin."""
        ...

    async def end(self, entry: Entry, /) -> None:
        """Store the result of a write, which is on the entry; no run has read it yet."""
        ...


class Exchange:
    """Performs live calls on behalf of runs and records them; alone cancels its pumps.

    It is open; then `cancel` ends reads and starts nothing more, and `close` sees writes to their
    end and releases the locks. `exchange_id` is what the log shows beside the lines of its tasks.
    A write, once started, may take `write_seconds` even when no run waits for it. A `journal`
    stores each write before it is made, and its result before a run reads it.

    Stamps are whole microseconds since the exchange began; `after` is the last stamp of a tape
    that goes on.
    """

    def __init__(
        self,
        live: Effects,
        tape: Tape | None = None,
        *,
        exchange_id: str = "",
        write_seconds: float = 30.0,
        journal: Journal | None = None,
        monotonic: Callable[[], float] = time.perf_counter,
        after: int = 0,
    ) -> None:
        self.tape = Tape() if tape is None else tape
        self._live = live
        self._write_seconds = write_seconds
        self._journal = journal
        self._monotonic = monotonic
        # One more, so that no rounding of a float can lead back before it.
        self._began = monotonic() - ((after + 1) / 1_000_000 if after else 0)
        self._context = exchange_context(exchange_id)
        self._reads: set[asyncio.Task[None]] = set()
        self._writes: set[asyncio.Task[None]] = set()
        self._locks: list[str] = []
        self._closing = False

    def context(self) -> Context:
        """Make a context for a task of the exchange, empty but for the exchange id."""
        return self._context.copy()

    def stamp(self) -> int:
        """Return the microseconds since the exchange began, quantised before any code sees them."""
        return int((self._monotonic() - self._began) * 1_000_000)

    def stamp_of(self, moment: float) -> int:
        """Return the stamp of a moment, in seconds of the exchange's clock."""
        return int((moment - self._began) * 1_000_000)

    def start(self, operation: Operation, site: str, arguments: Any, args: bytes) -> Entry:
        """Open an entry and let a pump perform the call."""
        entry = self.tape.add(operation, site, args, self.stamp())
        if self._closing:
            entry.close("cut", self.stamp())
            return entry
        read = operation.kind == "read" or self._declared("read_only", operation, arguments)
        pumps = self._reads if read else self._writes
        pump = asyncio.get_running_loop().create_task(
            self._pump(entry, arguments, read=read),
            name=f"pump {operation.label}",
            context=self.context(),
        )
        pumps.add(pump)
        pump.add_done_callback(partial(self._pump_done, pumps, entry))
        return entry

    async def perform(
        self, operation: Operation, site: str, arguments: msgspec.Struct, args: bytes
    ) -> Entry:
        """Make a call: in the caller's own task where it is instant, else in a pump.

        A human's answer is read in the caller's task, too; raises `Paused`, and records nothing,
        while there is none.
        """
        if operation is HUMAN_ANSWER:
            return await self._read_answer(site, arguments, args)
        if operation.kind != "instant":
            return self.start(operation, site, arguments, args)
        entry = self.tape.add(operation, site, args, self.stamp())
        await self._record(entry, arguments)
        return entry

    async def _read_answer(self, site: str, arguments: msgspec.Struct, args: bytes) -> Entry:
        try:
            answer = await _call_live(self._live, HUMAN_ANSWER, site, arguments)
        except (Paused, *CANCELLED):
            raise
        except ANYTHING as error:  # whatever an adapter raises ends on the tape
            entry = self.tape.add(HUMAN_ANSWER, site, args, self.stamp())
            entry.fault = self._fault_of(entry, error)
        else:
            entry = self.tape.add(HUMAN_ANSWER, site, args, self.stamp())
            self._add_result(entry, answer)
        entry.close("complete" if entry.fault is None else "error", entry.ended, entry.fault)
        return entry

    async def acquire_locks(self) -> bool:
        """Acquire the locks that are held on the tape; False where another owner has one by now.

        Raises `EffectFailed`. What was acquired is released when the exchange ends.
        """
        for lock in _held_locks(self.tape):
            acquiring = self._live.locks.acquire("exchange", lock.key, lock.ttl)
            if not await self._within_deadline(acquiring):
                return False
            self._locks.append(lock.key)
        return True

    async def release_locks(self) -> None:
        """Release now what the flow has released, though the exchange goes on.

        Call it once no run can take over any more: a successor would find the locks on the tape.
        """
        needed = {lock.key for lock in _held_locks(self.tape)}
        free = [key for key in self._locks if key not in needed]
        self._locks = [key for key in self._locks if key in needed]
        for key in free:
            await self._release(key)

    def cancel(self) -> tuple[asyncio.Task[None], ...]:
        """Start no further call and cancel model and read-only calls; returns their tasks."""
        self._closing = True
        reads = tuple(self._reads)
        for task in reads:
            task.cancel()
        return reads

    async def cancel_reads(self) -> None:
        """Cancel, and wait until the reads have ended; writes go on."""
        reads = self.cancel()
        if reads:
            await asyncio.wait(reads)

    def close_if_idle(self) -> bool:
        """Close at once; False where calls or locks make `close` wait."""
        if self._reads or self._writes or self._locks:
            return False
        self._closing = True
        self.tape.stop_recording()
        return True

    async def close(self) -> None:
        """Cancel reads, wait for writes up to their deadline, release the locks.

        Idempotent. Cancelling the caller does not lose a lock: the rest is done in a task that is
        waited for, however often that is interrupted.
        """
        self.tape.stop_recording()
        closing = asyncio.ensure_future(self._close())
        interrupted = False
        while not closing.done():
            try:
                await asyncio.shield(closing)
            except asyncio.CancelledError:
                interrupted = True
        if interrupted:
            raise asyncio.CancelledError

    async def _close(self) -> None:
        self.cancel()
        while calls := (*self._reads, *self._writes):
            await asyncio.wait(calls)
        while self._locks:
            await self._release(self._locks.pop())

    async def _release(self, key: str) -> None:
        try:
            await self._within_deadline(self._live.locks.release("exchange", key))
        except Exception as error:  # noqa: BLE001 - one lock's trouble must not keep the others
            kind = error.fault.code if isinstance(error, EffectFailed) else type(error).__name__
            log.warning("lock %r expires by itself: %s", key, kind)

    async def _pump(self, entry: Entry, arguments: Any, *, read: bool) -> None:
        contain(partial(_report_exit, entry.operation.label))
        journal = None if read else self._journal
        if journal is not None and not await self._begin(journal, entry, arguments):
            entry.close("cut", self.stamp())
            return
        await self._record(entry, arguments, journal)
        if entry.operation is LOCK_ACQUIRE and entry.items and entry.items[0].held:
            self._locks.append(arguments.key)

    async def _begin(self, journal: Journal, entry: Entry, arguments: Any) -> bool:
        operation = entry.operation
        repeatable = operation.idempotent or self._declared("idempotent", operation, arguments)
        entry.begun = not repeatable
        allowed = False
        try:
            with suppress(EffectFailed):  # no answer in time
                allowed = await self._within_deadline(journal.begin(entry))
        finally:
            entry.begun = entry.begun and allowed
        return allowed

    def _declared(self, what: str, operation: Operation, arguments: object) -> bool:
        """Whether a live tool declares that it is `read_only` or `idempotent`, beyond its port."""
        declares = getattr(self._live.tools, what, None) if operation is TOOLS_RUN else None
        return declares is not None and bool(declares(getattr(arguments, "name", "")))

    def _pump_done(
        self, pumps: set[asyncio.Task[None]], entry: Entry, pump: asyncio.Task[None]
    ) -> None:
        pumps.discard(pump)
        # A pump cancelled before its first step never saw its entry; its readers wait all the same.
        entry.close("cut", self.stamp())

    async def _record(self, entry: Entry, arguments: Any, journal: Journal | None = None) -> None:
        """Perform the call of an entry, and record what comes of it."""
        operation, live = entry.operation, self._live
        try:
            if operation.streams:
                stream = getattr(getattr(live, operation.port), operation.name)
                async for item in stream(entry.site, arguments):
                    # A copy: an adapter may reuse the object, and records do not change.
                    entry.append(replace(item, at=self.stamp()))
                    if self.tape.usage.overflowed:
                        await entry.wait_for_reader()
                entry.close("complete", self.stamp())
                return
            if operation is LOCK_RELEASE:
                result: Any = Released()  # only recorded: the exchange releases its locks itself
            else:
                call = _call_live(live, operation, entry.site, arguments)
                result = await (self._within_deadline(call) if operation.kind == "write" else call)
            self._add_result(entry, result)
        except CANCELLED:
            entry.close("cut", self.stamp())
            raise
        except ANYTHING as error:  # whatever an adapter raises ends on the tape
            entry.fault = self._fault_of(entry, error)
        # The entry is still open, so that no run reads what the journal does not have.
        try:
            if journal is not None:
                with suppress(EffectFailed):
                    await self._within_deadline(journal.end(entry))
        finally:
            entry.close("complete" if entry.fault is None else "error", entry.ended, entry.fault)

    def _add_result(self, entry: Entry, item: Any) -> None:
        entry.ended = self.stamp()
        if entry.operation is TOOLS_RUN:
            item = replace(item, at=entry.ended)
        entry.append(item)

    def _fault_of(self, entry: Entry, error: BaseException) -> Fault:
        entry.ended = self.stamp()
        if isinstance(error, EffectFailed):
            return error.fault
        # The text may hold secrets: it goes to the log's traceback, never to the tape.
        log.error("adapter of %s failed", entry.operation.label, exc_info=error)
        return Fault("adapter_failed", data={"kind": type(error).__name__})

    async def _within_deadline(self, call: Awaitable[Any]) -> Any:
        seconds = self._write_seconds
        deadline = limit(seconds)
        try:
            async with deadline:
                return await call
        except TimeoutError:
            if not deadline.expired():
                raise  # the adapter's own
            raise EffectFailed(Fault("deadline", data={"seconds": seconds})) from None


async def _call_live(live: Effects, operation: Operation, site: str, arguments: Any) -> Any:
    """Perform an operation that has one result, and return that as an item of the tape."""
    method = getattr(getattr(live, operation.port), operation.name)
    if operation.whole:
        value = await method(site, arguments)
    else:
        fields = msgspec.structs.asdict(arguments)
        named = {}
        for name in operation.named:
            named[name] = fields.pop(name)
        value = await method(site, *fields.values(), **named)
    if operation.result == "":
        return value
    return (operation.wrap or operation.item)(value)


def _held_locks(tape: Tape) -> tuple[Acquire, ...]:
    """Return what was acquired and not released, in the order of acquiring."""
    locks: dict[str, Acquire] = {}
    for entry in tape.entries:
        if entry.operation is LOCK_ACQUIRE and entry.items and entry.items[0].held:
            lock = msgspec.json.decode(entry.args, type=Acquire)
            locks[lock.key] = lock
        elif entry.operation is LOCK_RELEASE:
            locks.pop(msgspec.json.decode(entry.args, type=Release).key, None)
    return tuple(locks.values())


def _report_exit(label: str, error: BaseException) -> None:
    log.error("a task of %s asked for the end of the process", label, exc_info=error)


class OutOfReach(CutoverError):
    """A run that may call the model alone has tried something else."""

    def __init__(self, port: str, name: str) -> None:
        super().__init__(f"{port}.{name}: this run may call the model, and nothing else")


class _NoPort:
    def __init__(self, port: str) -> None:
        self._port = port

    def __getattr__(self, name: str) -> NoReturn:
        raise OutOfReach(self._port, name)


def model_exchange(model: Model, monotonic: Callable[[], float], after: int) -> Exchange:
    """Open an exchange that reaches the model and nothing else; its stamps go on from `after`.

    Its tape has no limit: it is bounded by what a model answers, and ends with the run.
    """
    ports: Any = {port: _NoPort(port) for port in Effects.__dataclass_fields__ if port != "model"}
    live = Effects(model=model, **ports)
    return Exchange(live, Tape(limit=sys.maxsize), monotonic=monotonic, after=after)
