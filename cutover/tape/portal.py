"""Calls of blocking code: from a thread through the event loop, or on the loop's own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

from cutover.errors import Fenced
from cutover.tape.entry import Call, Entry, Fault, Item
from cutover.tape.exchange import Exchange
from cutover.tape.run import CallFailed, Run, step

T = TypeVar("T")

_OPEN = Fault("Blocking", "it is under way, and cannot be awaited on the event loop's own thread")
_UNNOTED = Fault("Blocking", "a write of a resumed exchange needs a thread: asyncio.to_thread")


def call_blocking(
    run: Run, call: Call, perform: Callable[[], Iterator[Item]]
) -> Generator[Item, None, None]:
    """Yield the items of a call of blocking code, which performs it itself where it is due.

    In a thread it waits for the event loop. On the loop's own thread it cannot: what is on the tape
    is read where it has ended, and brought to its end where a crash has left it; `CallFailed` is
    raised where it is still open, and for a write that has to be stored before it is performed.
    """
    exchange = run.exchange
    if not _here(exchange):
        entry, due = _on_loop(exchange, obtain(run, call))
        if not due:
            yield from _waited(run.read(entry), exchange)
            return
    elif (found := run.locate(call) or run.missed(call)) is not None:
        if found.end == "open" and not found.finish():
            raise CallFailed(found, _OPEN)
        yield from run.read_now(found)
        return
    elif call.writes and exchange.journal is not None:
        raise CallFailed(Entry(call, exchange.stamp()), _UNNOTED)
    else:
        entry = _lend(run, call)
    yield from _performed(run, entry, _Source(run, entry, perform))


async def obtain(run: Run, call: Call, late: Fault | None = None) -> tuple[Entry, bool]:
    """Return the entry of a call, and whether its caller is to perform it, until its deadline.

    `late` is how the call fails then.
    """
    entry = await run.find(call)
    if entry is not None:
        return entry, False
    entry = _lend(run, call, late)
    try:
        await run.exchange.begin(entry)
    except BaseException:
        run.release(entry)
        raise
    return entry, True


def _lend(run: Run, call: Call, late: Fault | None = None) -> Entry:
    """Put a call on the tape that its caller performs, and reads, until its deadline."""
    entry = run.exchange.add(Entry(call, run.exchange.stamp()))
    late = late or Fault("TimeoutError", f"not done within {call.seconds:g} s")
    entry.deadline = run.exchange.loop.call_later(call.seconds, entry.close, "failed", late)
    run.note(call, "live", entry)
    run.occupy(entry)
    return entry


def _performed(run: Run, entry: Entry, source: _Source) -> Generator[Item, None, None]:
    """Perform a call in this thread."""
    try:
        while source.step():
            if run.refusing:
                raise Fenced(run.stack)
            run.now, item = entry.items[-1]
            yield item
        _ask(run.exchange, partial(run.check_end, entry))
    finally:
        _tell(run.exchange, partial(source.leave, run))


class _Source:
    """The items of a blocking call, one step at a time, by the run that performs it.

    A run that breaks off leaves a read where it is for a moment: a thread goes on with it for its
    successor. A write is brought to its end.
    """

    def __init__(self, run: Run, entry: Entry, perform: Callable[[], Iterator[Item]]) -> None:
        self._run: Run | None = run
        self._stack, self._exchange, self._entry = run.stack, run.exchange, entry
        self._items = inside(run.exchange.context(), perform)
        self._stepping = threading.Lock()
        self._draining = False
        entry.resume, entry.finish, entry.stop = self.resume, self.finish, self.stop

    def step(self, *, drains: bool = False) -> bool:
        """Put the next item on the tape, or the end of the call; False: it has ended.

        Raises `Fenced` for a run whose call is drained meanwhile.
        """
        exchange, entry = self._exchange, self._entry
        fault: Fault | None = None
        error: BaseException | None = None
        with self._stepping:
            if self._draining and not drains:
                raise Fenced(self._stack)
            try:
                item = next(self._items, None)
                if item is not None and _ask(exchange, partial(exchange.take, entry, item)):
                    return True
                self._items.close()
            except KeyboardInterrupt:
                _ask(exchange, partial(entry.close, "cut"))
                raise
            except BaseException as raised:  # noqa: BLE001 - as in a pump: it ends this call alone
                fault, error = _ask(exchange, partial(exchange.failed, entry, raised)), raised
                if fault is None:
                    return False
        if _here(exchange):
            exchange.settle_now(entry, fault, error)
        else:
            _on_loop(exchange, exchange.settle(entry, fault, error))
        return False

    def resume(self) -> None:
        """Go on in a thread, unless a run does."""
        if self._entry.end == "open" and self._left():
            self._exchange.loop.run_in_executor(None, self._drain)

    def finish(self) -> bool:
        """Go on in this thread to the end, unless a run or another thread does.

        This is the event loop's thread: a thread that is within a step waits for it.
        """
        if left := not self._stepping.locked() and self._left():
            self._drain()
        return left

    def _left(self) -> bool:
        """Take what no run performs; False where it is performed."""
        left = (self._run is None or self._run.refusing) and not self._draining
        self._draining |= left
        return left

    def leave(self, run: Run) -> None:
        """Be left by the run that performed the call."""
        self._run = None
        if self._entry.call.writes:
            self.resume()
        run.leave(self._entry)

    def stop(self) -> None:
        """Close what brings the items; a step under way finds by itself that the call has ended."""
        if not self._stepping.locked():
            self._items.close()

    def _drain(self) -> None:
        while self.step(drains=True):
            pass


def inside(context: Context, start: Callable[[], Iterable[T]]) -> Generator[T, None, None]:
    """Yield from what `start` returns; all its steps run in a context, and it is closed there."""
    items = context.run(start)
    try:
        steps = context.run(iter, items)
        while (item := context.run(next, steps, None)) is not None:
            yield item
    finally:
        if (close := getattr(items, "close", None)) is not None:
            context.run(close)


def _here(exchange: Exchange) -> bool:
    """Whether this is the thread of the exchange's event loop."""
    return asyncio._get_running_loop() is exchange.loop  # noqa: SLF001 - the one that does not raise


def _on_loop(exchange: Exchange, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the exchange's loop and wait for it in this thread."""
    return asyncio.run_coroutine_threadsafe(work, exchange.loop).result()


def _ask(exchange: Exchange, work: Callable[[], T]) -> T:
    """Run a function on the exchange's loop, whose tape belongs to one thread, and return."""

    async def there() -> T:
        return work()

    return work() if _here(exchange) else _on_loop(exchange, there())


def _tell(exchange: Exchange, work: Callable[[], object]) -> None:
    """Run a function on the exchange's loop, in time.

    Nothing waits for it: a generator that is left may be collected in any thread, that of another
    event loop, too.
    """
    if _here(exchange):
        work()
    else:
        with suppress(RuntimeError):  # the loop is closed
            exchange.loop.call_soon_threadsafe(work)


def _waited(items: AsyncGenerator[Item, None], exchange: Exchange) -> Generator[Item, None, None]:
    """Yield from a generator of the event loop, in a thread."""
    try:
        while (item := _on_loop(exchange, step(items))) is not None:
            yield item
    finally:
        _tell(exchange, lambda: exchange.loop.create_task(items.aclose()))
