"""An exchange: one request and everything done for it. It owns the tape and its pumps."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, Final, NoReturn, Protocol

import msgspec
from msgspec.structs import replace

from contract.errors import CutoverError, EffectFailed, Fault, Paused
from contract.external import IN_DOUBT, ExternalUpdate
from contract.model import SentCall
from contract.operations import (
    HUMAN_ANSWER,
    LOCK_ACQUIRE,
    LOCK_RELEASE,
    Operation,
    WriteLimits,
)
from contract.ports import Effects
from contract.stores import Acquire, Release, Released
from effects.loop_time import limit, loop_now
from effects.tape.lease import Lease, LentCall
from effects.tape.tape import Entry, Tape
from effects.tasks import ANYTHING, CANCELLED, contain, ended, exchange_context

log = logging.getLogger(__name__)

DEFAULT_LIMITS: Final = WriteLimits()
CANCEL_SECONDS: Final = 5.0
"""What a write that was cancelled at its deadline has to end."""


class Journal(Protocol):
    """Stores the writes of one exchange. Neither method raises but to be cancelled."""

    async def begin(self, entry: Entry, /) -> bool:
        """Store that a write begins, and what came before it; False where it must not begin."""
        ...

    async def end(self, entry: Entry, /) -> None:
        """Store the result of a write, which is on the entry; no run has read it yet."""
        ...


class NoResult(CutoverError):
    """An adapter has ended a stream without the result it ends with."""

    def __init__(self, label: str) -> None:
        super().__init__(f"{label} has ended without its result")


class Exchange:
    """Performs live calls on behalf of runs and records them; alone cancels its pumps.

    It is open; then `cancel` ends reads and starts nothing more, and `close` sees writes to their
    end and releases the locks. `exchange_id` is what the log shows beside the lines of its tasks.
    A write, once started, may go on to its deadline (`limits`) even when no run waits for it, or
    reads what it streams. A `journal` stores each write before it is made, and its result before a
    run reads it.

    Stamps are whole microseconds since the exchange began; `after` is the last stamp of a tape
    that goes on.
    """

    def __init__(
        self,
        live: Effects,
        tape: Tape | None = None,
        *,
        exchange_id: str = "",
        limits: WriteLimits = DEFAULT_LIMITS,
        journal: Journal | None = None,
        monotonic: Callable[[], float] = time.perf_counter,
        after: int = 0,
    ) -> None:
        self.tape = Tape() if tape is None else tape
        self._live = live
        self._limits = limits
        self._journal = journal
        self._monotonic = monotonic
        # One more, so that no rounding of a float can lead back before it.
        self._began = monotonic() - ((after + 1) / 1_000_000 if after else 0)
        self._context = exchange_context(exchange_id)
        self._reads: dict[asyncio.Future[None], Entry] = {}
        self._writes: dict[asyncio.Future[None], Entry] = {}
        self._lent: dict[Lease, asyncio.Future[None]] = {}
        self._lease_check: asyncio.TimerHandle | None = None
        self._lease_due = math.inf
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
        pumps[pump] = entry
        pump.add_done_callback(partial(self._pump_done, pumps))
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
        if isinstance(arguments, LentCall):
            return await self._lend(operation, site, arguments, args)
        if operation.kind != "instant":
            return self.start(operation, site, arguments, args)
        entry = self.tape.add(operation, site, args, self.stamp())
        await self._record(entry, arguments)
        return entry

    async def _lend(self, operation: Operation, site: str, call: LentCall, args: bytes) -> Entry:
        """Open an entry whose call the caller performs, once the journal has it."""
        entry = self.tape.add(operation, site, args, self.stamp())
        if self._closing:
            entry.close("cut", entry.at)
            return entry
        calls = self._reads if operation.kind == "read" else self._writes
        open_call = asyncio.get_running_loop().create_future()
        calls[open_call] = entry
        open_call.add_done_callback(partial(self._pump_done, calls))
        lease, most = call.lease, math.inf
        if operation.kind != "read":
            most = self._limits.of(operation, args)
            if self._journal is not None:
                allowed = False
                try:
                    allowed = await self._begin(self._journal, entry, call)
                finally:
                    if not allowed:
                        open_call.cancel()
                        entry.close("cut", self.stamp())
                if not allowed:
                    return entry
        lease.begin(self, entry, most)
        self._lent[lease] = open_call
        self._check_leases_at(lease.due)
        return entry

    def take(self, lease: Lease, updates: Sequence[ExternalUpdate]) -> None:
        """Put what is reported of a lent call on the tape."""
        entry = lease.entry
        if entry is None or entry.end != "open" or entry.fault is not None:
            return
        for update in updates:
            if update.result is not None:
                self._add_result(entry, update)
                return
            entry.append(replace(update, at=self.stamp()))
            if self.tape.usage.overflowed:
                entry.drop_unread()

    async def settle(self, lease: Lease) -> None:
        """End a lent call whose result is on the tape; returns once the journal has it, too."""
        open_call, entry = self._lent.pop(lease, None), lease.entry
        if open_call is None or entry is None:
            return
        journal = None if entry.operation.kind == "read" else self._journal
        try:
            if journal is None:
                self._end(entry)
            else:
                await ended(self._settle(entry, journal))  # also where who reports is cancelled
        finally:
            if not open_call.done():
                open_call.set_result(None)

    def abandon(self, lease: Lease) -> None:
        """End a lent call that nobody will report: it is in doubt."""
        self._expire(lease, Fault(IN_DOUBT))

    def _expire(self, lease: Lease, fault: Fault) -> None:
        entry = lease.entry
        if entry is None or lease.ended or lease not in self._lent:
            return
        entry.fault, entry.ended = fault, self.stamp()
        if self._journal is None or entry.operation.kind == "read":
            self._end(entry)
            open_call = self._lent.pop(lease)
            if not open_call.done():
                open_call.set_result(None)
            return
        settling = asyncio.get_running_loop().create_task(
            self.settle(lease), name="settle", context=self.context()
        )
        self._writes[settling] = entry  # awaited where the exchange closes
        settling.add_done_callback(partial(self._pump_done, self._writes))

    def _check_leases_at(self, due: float) -> None:
        """Let a timer go off when a lease is over: one for all of the exchange."""
        if due >= self._lease_due:
            return
        if self._lease_check is not None:
            self._lease_check.cancel()
        self._lease_due = due
        loop = asyncio.get_running_loop()
        self._lease_check = loop.call_later(max(due - loop_now(), 0.001), self._check_leases)

    def _check_leases(self) -> None:
        self._lease_check, self._lease_due, now = None, math.inf, loop_now()
        for lease in [*self._lent]:
            if lease.ended:
                del self._lent[lease]
            elif now < lease.due:
                self._check_leases_at(lease.due)
            elif now >= lease.deadline and lease.entry is not None:
                seconds = self._limits.of(lease.entry.operation, lease.entry.args)
                self._expire(lease, Fault("deadline", data={"seconds": seconds}))
            else:
                self._expire(lease, Fault(IN_DOUBT, data={"seconds": lease.seconds}))

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

    @property
    def writes(self) -> tuple[Entry, ...]:
        """The writes under way."""
        return tuple(self._writes.values())

    @property
    def write_seconds_left(self) -> float:
        """The seconds that the writes under way may still take; 0 where there is none."""
        now, of = self.stamp(), self._limits.of
        left = (of(one.operation, one.args) - (now - one.at) / 1_000_000 for one in self.writes)
        return max(left, default=0.0)

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

    def cancel(self) -> tuple[asyncio.Future[None], ...]:
        """Start no further call and cancel model and read-only calls; returns their tasks."""
        self._closing = True
        reads = tuple(self._reads)
        for task in reads:
            task.cancel()
        return reads

    async def cancel_reads(self) -> None:
        """Cancel, and wait until the reads have ended; writes go on."""
        self.cancel()
        while self._reads:
            await asyncio.wait(self._reads, timeout=CANCEL_SECONDS)

    def close_if_idle(self) -> bool:
        """Close at once; False where calls or locks make `close` wait."""
        if self._reads or self._writes or self._locks:
            return False
        self._closing = True
        self._stop_lease_check()
        self.tape.stop_recording()
        return True

    async def close(self) -> None:
        """Cancel reads, wait for writes up to their deadline, release the locks.

        Idempotent. Cancelling the caller does not lose a lock: the rest is done in a task that is
        waited for, however often that is interrupted.
        """
        self.tape.stop_recording()
        await ended(self._close())

    async def _close(self) -> None:
        self.cancel()
        while calls := (*self._reads, *self._writes):
            # Not for ever: one that is left behind is no longer among them.
            await asyncio.wait(calls, timeout=CANCEL_SECONDS)
        self._stop_lease_check()
        while self._locks:
            await self._release(self._locks.pop())

    def _stop_lease_check(self) -> None:
        if self._lease_check is not None:
            self._lease_check.cancel()

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
        if operation.keyed and getattr(arguments, operation.keyed):
            repeatable = True
        entry.begun = not repeatable
        allowed = False
        try:
            with suppress(EffectFailed):  # no answer in time
                allowed = await self._within_deadline(journal.begin(entry))
        finally:
            entry.begun = entry.begun and allowed
        return allowed

    def _declared(self, what: str, operation: Operation, arguments: object) -> bool:
        """Whether a live tool or worker's action is declared `read_only` or `idempotent`."""
        port = getattr(self._live, operation.port) if operation.names else None
        declares = getattr(port, what, None)
        if declares is None:
            return False
        return bool(declares(".".join(getattr(arguments, name) for name in operation.names)))

    def _pump_done(
        self, pumps: dict[asyncio.Future[None], Entry], pump: asyncio.Future[None]
    ) -> None:
        # A pump cancelled before its first step never saw its entry; its readers wait all the same.
        if (entry := pumps.pop(pump, None)) is not None:
            entry.close("cut", self.stamp())

    def _leave_behind(self, entry: Entry, seconds: float) -> None:
        """End the entry of a write that ignores its cancellation; nothing waits for it any more."""
        log.error("%s ignores its deadline, and is left behind", entry.operation.label)
        entry.close("error", self.stamp(), Fault("deadline", data={"seconds": seconds}))
        for pumps in (self._reads, self._writes):
            for pump in [one for one, its in pumps.items() if its is entry]:
                del pumps[pump]

    async def _record(self, entry: Entry, arguments: Any, journal: Journal | None = None) -> None:
        """Perform the call of an entry, and record what comes of it."""
        operation = entry.operation
        try:
            if operation is LOCK_RELEASE:
                self._add_result(entry, Released())  # the exchange releases its locks itself
            else:
                append = self._append_items if operation.streams else self._append_result
                call = append(entry, arguments)
                if operation.kind == "write":
                    seconds = self._limits.of(operation, entry.args)
                    leave_behind = partial(self._leave_behind, entry, seconds)
                    call = self._within_deadline(call, seconds, leave_behind)
                await call
        except CANCELLED as error:
            entry.close("cut", self.stamp())
            # A cycle otherwise: the task holds its error, that its frames, a time limit the task.
            error.__traceback__ = None
            raise
        except ANYTHING as error:  # whatever an adapter raises ends on the tape
            if entry.withheld:
                log.warning("%s failed after its result", operation.label, exc_info=error)
            else:
                entry.fault = self._fault_of(entry, error)
        await self._settle(entry, journal)

    async def _settle(self, entry: Entry, journal: Journal | None) -> None:
        """End an entry, which is open until the journal has what came of it: no run reads it."""
        try:
            if journal is not None and entry.end == "open":
                with suppress(EffectFailed):
                    await self._within_deadline(journal.end(entry))
        finally:
            self._end(entry)

    def _end(self, entry: Entry) -> None:
        entry.close("complete" if entry.fault is None else "error", entry.ended, entry.fault)

    async def _append_result(self, entry: Entry, arguments: Any) -> None:
        result = await _call_live(self._live, entry.operation, entry.site, arguments)
        self._add_result(entry, result)

    async def _append_items(self, entry: Entry, arguments: Any) -> None:
        """Append items as they come; a write that streams ends with its result."""
        operation, usage = entry.operation, self.tape.usage
        last = operation.last
        if isinstance(arguments, SentCall):
            stream = arguments.chunks()
        else:
            method = getattr(getattr(self._live, operation.port), operation.name)
            stream = method(entry.site, arguments)
        try:
            async for item in stream:
                if last and getattr(item, last) is not None:
                    self._add_result(entry, item)
                    return
                if entry.end != "open":
                    return  # left behind
                # A copy: an adapter may reuse the object, and records do not change.
                entry.append(replace(item, at=self.stamp()))
                if not usage.overflowed:
                    continue
                if operation.kind == "write":
                    entry.drop_unread()
                else:
                    await entry.wait_for_reader()
        finally:
            if (close := getattr(stream, "aclose", None)) is not None:
                await close()  # it may have been left between two items
        if last:
            raise NoResult(operation.label)
        entry.ended = self.stamp()

    def _add_result(self, entry: Entry, item: Any) -> None:
        if entry.end != "open":
            return  # left behind
        entry.ended = self.stamp()
        if entry.operation.stamped:
            item = replace(item, at=entry.ended)
        entry.append(item)
        entry.withheld = True

    def _fault_of(self, entry: Entry, error: BaseException) -> Fault:
        entry.ended = self.stamp()
        if isinstance(error, EffectFailed):
            return error.fault
        # The text may hold secrets: it goes to the log's traceback, never to the tape.
        log.error("adapter of %s failed", entry.operation.label, exc_info=error)
        return Fault("adapter_failed", data={"kind": type(error).__name__})

    async def _within_deadline(
        self,
        call: Awaitable[Any],
        seconds: float | None = None,
        leave_behind: Callable[[], object] | None = None,
    ) -> Any:
        """Await a call up to its deadline; `leave_behind` is called where it goes on after that.

        Without `seconds` those of any write.
        """
        seconds = self._limits.seconds if seconds is None else seconds
        deadline = limit(seconds)
        watch = None
        try:
            async with deadline:
                if leave_behind is not None:
                    watch = _DeadlineWatch(deadline, leave_behind)
                return await call
        except TimeoutError:
            if not deadline.expired():
                raise  # the adapter's own
            raise EffectFailed(Fault("deadline", data={"seconds": seconds})) from None
        finally:
            if watch is not None:
                watch.handle.cancel()


class _DeadlineWatch:
    """Calls `leave_behind` where a call has not ended `CANCEL_SECONDS` after its deadline."""

    __slots__ = ("_deadline", "_leave_behind", "handle")

    def __init__(self, deadline: asyncio.Timeout, leave_behind: Callable[[], object]) -> None:
        self._deadline = deadline
        self._leave_behind = leave_behind
        self._set()

    def _set(self) -> None:
        loop = asyncio.get_running_loop()
        when = self._deadline.when() or loop.time()
        self.handle = loop.call_at(when + CANCEL_SECONDS, self._check)

    def _check(self) -> None:
        # While the loop stood still the deadline has been moved.
        if self._deadline.expired():
            self._leave_behind()
        else:
            self._set()


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
    if operation.result is None:
        return operation.item()
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
    """A run that may call one port alone has tried something else."""

    def __init__(self, port: str, name: str, only: str) -> None:
        super().__init__(f"{port}.{name}: this run may call the {only}, and nothing else")


class _NoPort:
    def __init__(self, port: str, only: str) -> None:
        self._port = port
        self._only = only

    def __getattr__(self, name: str) -> NoReturn:
        raise OutOfReach(self._port, name, self._only)


def port_exchange(name: str, port: object, monotonic: Callable[[], float], after: int) -> Exchange:
    """Open an exchange that reaches one port and nothing else; its stamps go on from `after`.

    Its tape has no limit: it is bounded by what that port answers, and ends with the run.
    """
    ports: Any = {other: _NoPort(other, name) for other in Effects.__dataclass_fields__}
    live = Effects(**{**ports, name: port})
    return Exchange(live, Tape(limit=sys.maxsize), monotonic=monotonic, after=after)
