"""An exchange: one request and everything done for it. It owns the tape and its pumps."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from contract import operations as ops
from contract.errors import EffectFailed, Fault, Paused
from effects.tape.bindings import PERFORM, stream_model
from effects.tape.held import held
from effects.tape.tape import Tape
from effects.tasks import ANYTHING, CANCELLED, belonging, contain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    import msgspec

    from contract.operations import Operation
    from contract.ports import Effects, Tools
    from contract.stores import Acquire
    from effects.tape.tape import Entry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long a write, once started, may take even when nobody waits for it; seconds."""

    write: float = 30.0


class Exchange:
    """Performs live calls on behalf of runs and records them; alone cancels its pumps.

    Stamps are whole microseconds since the exchange began; `after` is the last stamp of a tape
    that goes on. `covered`, where somebody has set it, is asked before each write whether that is
    still to be done here.
    """

    def __init__(
        self,
        live: Effects,
        tape: Tape | None = None,
        *,
        deadlines: Deadlines | None = None,
        monotonic: Callable[[], float] = time.perf_counter,
        after: int = 0,
    ) -> None:
        self.tape = Tape() if tape is None else tape
        self.covered: Callable[[], Awaitable[bool]] | None = None
        self._live = live
        self._deadlines = deadlines or Deadlines()
        self._monotonic = monotonic
        # One more, so that no rounding of a float can lead back before it.
        self._began = monotonic() - (after + 1) / 1_000_000 if after else monotonic()
        self._reads: set[asyncio.Task[None]] = set()
        self._writes: set[asyncio.Task[None]] = set()
        self._locks: list[str] = []
        self._closed = False
        self._belonging = Context()

    def belong_to(self, exchange: str) -> None:
        """Let the log say which exchange it is of what its tasks say."""
        self._belonging = belonging(exchange)

    def context(self) -> Context:
        """Make a context for a task of the exchange: it holds nothing of whoever starts it."""
        return self._belonging.copy()

    def stamp(self) -> int:
        """Microseconds since the exchange began, quantised before anybody sees them."""
        return int((self._monotonic() - self._began) * 1_000_000)

    def stamp_of(self, moment: float) -> int:
        """Give the stamp of a moment, in seconds of the exchange's clock."""
        return int((moment - self._began) * 1_000_000)

    def start(
        self, operation: Operation, site: str, arguments: msgspec.Struct, args: bytes
    ) -> Entry:
        """Open an entry and let a pump perform the call."""
        entry = self.tape.add(operation, site, args, self.stamp())
        if self._closed:
            entry.close("cut", self.stamp())
            return entry
        reads = self._dies_with_exchange(operation, arguments)
        group = self._reads if reads else self._writes
        pump = self._pump if reads or self.covered is None else self._write
        # A context of its own: a pump belongs to the exchange, not to whoever asked first.
        task = asyncio.get_running_loop().create_task(
            pump(entry, arguments), name=f"pump {operation.label}", context=self.context()
        )
        group.add(task)
        task.add_done_callback(partial(self._ended, group, entry))
        return entry

    def _ended(
        self, group: set[asyncio.Task[None]], entry: Entry, pump: asyncio.Task[None]
    ) -> None:
        group.discard(pump)
        # A pump cancelled before its first step never saw its entry; its readers wait all the same.
        entry.close("cut", self.stamp())

    async def perform_now(
        self, operation: Operation, site: str, arguments: msgspec.Struct, args: bytes
    ) -> Entry:
        """Perform an instant operation in the caller's own task."""
        entry = self.tape.add(operation, site, args, self.stamp())
        await self._record(entry, PERFORM[operation.label](self._live, site, arguments))
        return entry

    async def ask_human(self, site: str, arguments: msgspec.Struct, args: bytes) -> Entry:
        """Read an answer; raises `Paused`, and records nothing, while there is none."""
        try:
            answer = await PERFORM[ops.HUMAN_ANSWER.label](self._live, site, arguments)
        except (Paused, *CANCELLED):
            raise
        except ANYTHING as error:  # whatever an adapter raises ends on the tape
            entry = self.tape.add(ops.HUMAN_ANSWER, site, args, self.stamp())
            self._fail(entry, error)
        else:
            entry = self.tape.add(ops.HUMAN_ANSWER, site, args, self.stamp())
            self._complete(entry, answer)
        return entry

    async def hold(self, locks: Iterable[Acquire]) -> bool:
        """Take locks that the tape says are held; False where somebody else has one by now.

        Raises `EffectFailed`. What was taken is let go of when the exchange ends.
        """
        for lock in locks:
            taking = self._live.locks.acquire("exchange", lock.key, lock.ttl)
            if not await self._within_deadline(taking):
                return False
            self._locks.append(lock.key)
        return True

    async def abandon(self) -> None:
        """Nobody reads any more: model and read-only calls die now, writes go on."""
        reads = self.hang_up()
        if reads:
            await asyncio.wait(reads)

    def hang_up(self) -> tuple[asyncio.Task[None], ...]:
        """Start nothing more and let reads die, without waiting for them; gives those."""
        self._closed = True
        reads = tuple(self._reads)
        for task in reads:
            task.cancel()
        return reads

    def end_idle(self) -> bool:
        """End the exchange there and then; False where calls or locks make `close` wait."""
        if self._reads or self._writes or self._locks:
            return False
        self._closed = True
        self.tape.finish_recording()
        return True

    async def close(self) -> None:
        """End the exchange: reads die, writes end or meet their deadline, locks are let go.

        Idempotent. Cancelling the caller does not lose a lock: the rest is done in a task that is
        waited for, however often that is interrupted.
        """
        self.tape.finish_recording()
        ending = asyncio.ensure_future(self._end())
        interrupted = False
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                interrupted = True
        if interrupted:
            raise asyncio.CancelledError

    async def _end(self) -> None:
        await self.abandon()
        while self._writes:
            await asyncio.wait(tuple(self._writes))
        while self._locks:
            await self._release(self._locks.pop())

    async def let_go(self) -> None:
        """Release now what the flow says it needs no longer, though the exchange goes on.

        Call it once nobody can take over any more: a successor would find the locks on the tape.
        """
        needed = {lock.key for lock in held(self.tape)}
        free = [key for key in self._locks if key not in needed]
        self._locks = [key for key in self._locks if key in needed]
        for key in free:
            await self._release(key)

    async def _release(self, key: str) -> None:
        try:
            await self._within_deadline(self._live.locks.release("exchange", key))
        except Exception as error:  # noqa: BLE001 - one lock's trouble must not keep the others
            log.warning("lock %r expires by itself: %s", key, _kind(error))

    def _dies_with_exchange(self, operation: Operation, arguments: Any) -> bool:
        if operation is ops.TOOLS_RUN:
            return _read_only(self._live.tools, arguments.name)
        return operation.kind == "read"

    async def _write(self, entry: Entry, arguments: Any) -> None:
        ours = False
        if self.covered is not None:
            with suppress(EffectFailed):  # nobody has said so in time
                ours = await self._within_deadline(self.covered())
        if ours:
            await self._pump(entry, arguments)
        else:
            entry.close("cut", self.stamp())

    async def _pump(self, entry: Entry, arguments: Any) -> None:
        contain(partial(_tell, entry.operation.label))
        operation, site = entry.operation, entry.site
        if operation.streams:
            await self._record_stream(entry, arguments)
        elif operation.kind == "write":
            await self._record(
                entry, self._within_deadline(PERFORM[operation.label](self._live, site, arguments))
            )
            if operation is ops.LOCK_ACQUIRE and entry.items and entry.items[0].held:
                self._locks.append(arguments.key)
        else:
            await self._record(entry, PERFORM[operation.label](self._live, site, arguments))

    async def _within_deadline(self, call: Awaitable[Any]) -> Any:
        seconds = self._deadlines.write
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await call
        except TimeoutError:
            if not limit.expired():
                raise  # the adapter's own
            raise EffectFailed(Fault("deadline", data={"seconds": seconds})) from None

    async def _record(self, entry: Entry, call: Awaitable[Any]) -> None:
        try:
            self._complete(entry, await call)
        except CANCELLED:
            entry.close("cut", self.stamp())
            raise
        except ANYTHING as error:  # whatever an adapter raises ends on the tape
            self._fail(entry, error)

    def _complete(self, entry: Entry, item: Any) -> None:
        stamp = self.stamp()
        if entry.operation is ops.TOOLS_RUN:
            item = replace(item, at=stamp)
        entry.append(item)
        entry.close("complete", stamp)

    async def _record_stream(self, entry: Entry, arguments: Any) -> None:
        try:
            async for chunk in stream_model(self._live, entry.site, arguments):
                # A copy: an adapter may give the same object again, and records do not change.
                entry.append(replace(chunk, at=self.stamp()))
                if self.tape.overflowed:
                    await entry.room()
        except CANCELLED:
            entry.close("cut", self.stamp())
            raise
        except ANYTHING as error:  # whatever an adapter raises ends on the tape
            self._fail(entry, error)
        else:
            entry.close("complete", self.stamp())

    def _fail(self, entry: Entry, error: BaseException) -> None:
        if isinstance(error, EffectFailed):
            fault = error.fault
        else:
            # The text may hold secrets: it goes to the log's traceback, never to the tape.
            log.error("adapter of %s failed", entry.operation.label, exc_info=error)
            fault = Fault("adapter_failed", data={"kind": type(error).__name__})
        entry.close("error", self.stamp(), fault)


def _read_only(tools: Tools, name: str) -> bool:
    """Whether a tool changes nothing outside, as live tools may say beyond their port."""
    declared = getattr(tools, "read_only", None)
    return bool(declared(name)) if declared is not None else False


def _tell(label: str, error: BaseException) -> None:
    log.error("a task of %s asked for the end of the process", label, exc_info=error)


def _kind(error: BaseException) -> str:
    return error.fault.code if isinstance(error, EffectFailed) else type(error).__name__
