"""Threads of the workers: what blocks runs in them, and never in the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias, TypeVar, TypeVarTuple

from effects.tasks import ended

Args = TypeVarTuple("Args")
Value = TypeVar("Value")

Stopped: TypeAlias = Callable[[], bool]
"""Whether work in a thread is to end now; it asks between two steps."""

STOP_SECONDS: Final = 5.0
"""How long a thread is waited for that is told to stop: a disk that hangs never returns."""
_THREADS: Final = 8


class WorkerThreads:
    """A pool of threads. A call that never returns keeps its thread."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="worker")

    async def run(self, work: Callable[[*Args], Value], *args: *Args) -> Value:
        """Do work in a thread; raises what it raises. Cancelled, it is not waited for."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    async def whole(self, work: Callable[[*Args], Value], *args: *Args) -> Value:
        """Do short work that is not to be interrupted: cancelled, it is waited for."""
        return await ended(self.run(work, *args))

    async def stoppable(self, work: Callable[[Stopped], Value]) -> Value:
        """Do long work; cancelled, it is told to stop, and waited for `STOP_SECONDS` at most."""
        stop = threading.Event()
        working = asyncio.ensure_future(self.run(work, stop.is_set))
        try:
            return await asyncio.shield(working)
        finally:
            stop.set()
            if not working.done():
                working.add_done_callback(lambda task: task.cancelled() or task.exception())
                await ended(asyncio.wait([working], timeout=STOP_SECONDS))

    def close(self) -> None:
        """Take no more work; idempotent. What runs is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)
