"""An event loop whose clock jumps to the next timer instead of waiting for it."""

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar, TypeVarTuple

Result = TypeVar("Result")
Args = TypeVarTuple("Args")

Ready = list[tuple[selectors.SelectorKey, int]]

GUARD_SECONDS = 60.0
QUIET_SECONDS = 0.005
"""Real seconds without a byte on a socket after which nothing counts as on its way."""


class LoopStuck(RuntimeError):
    """No timer is set, and nothing arrived from a socket or a thread: the test hangs."""

    def __init__(self, guard_seconds: float) -> None:
        super().__init__(
            f"no timer is set, and no socket or thread woke the loop for {guard_seconds!r} real "
            "seconds: something awaits what will never come"
        )


class JumpingSelector(selectors.DefaultSelector):
    """A selector that moves `now` (seconds, virtual) forward where another one would sleep."""

    def __init__(self, guard_seconds: float = GUARD_SECONDS) -> None:
        super().__init__()
        self.now = 0.0
        self._guard_seconds = guard_seconds
        self._threads = 0

    def select(self, timeout: float | None = None) -> Ready:
        """Return what is ready now; with nothing ready, pass over `timeout` virtual seconds."""
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None or self._threads:
            return self._wait()
        # The loop's own pipe aside: a busy kernel delivers on loopback a little later.
        if len(self.get_map()) > 1 and (ready := super().select(QUIET_SECONDS)):
            return ready
        self.now += timeout
        return []

    def thread_started(self) -> None:
        """Hold the clock until `thread_ended`: work takes real time and no virtual time."""
        self._threads += 1

    def thread_ended(self, _: object = None) -> None:
        """Let the clock go on (callable as a future's callback)."""
        self._threads -= 1

    def _wait(self) -> Ready:
        ready = super().select(self._guard_seconds)
        if not ready:
            raise LoopStuck(self._guard_seconds)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A selector loop on virtual time; it starts at 0 and no test on it waits.

    Work given to an executor holds the clock until it is done, and so do bytes between two sockets
    of the test. Threads the loop did not start and other processes do not: what has any of them
    belongs into a test on a real loop.
    """

    def __init__(self, guard_seconds: float = GUARD_SECONDS) -> None:
        self._jumping = JumpingSelector(guard_seconds)
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._jumping.now

    def stand_still(self, seconds: float) -> None:
        """Let time pass in which no task runs, as on a machine that is stopped for a while."""
        self._jumping.now += seconds

    def hold(self) -> None:
        """Hold the clock until `release`: a thread that the loop did not start works for it."""
        self._jumping.thread_started()

    def release(self) -> None:
        """Let the clock go on."""
        self._jumping.thread_ended()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Args], Result], *args: *Args
    ) -> asyncio.Future[Result]:
        """Run `func` in a thread and hold the clock until it has ended."""
        future = super().run_in_executor(executor, func, *args)
        self._jumping.thread_started()
        future.add_done_callback(self._jumping.thread_ended)
        return future

    async def shutdown_default_executor(self, *_: float | None) -> None:
        """Join the threads; the guard is the limit, since a virtual one would end at once."""
        self._jumping.thread_started()
        try:
            await super().shutdown_default_executor()
        finally:
            self._jumping.thread_ended()
