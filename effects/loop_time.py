"""The time in which an event loop turned.

A process that is stopped, a machine that is suspended or a loop that is blocked does nothing, and
hears nothing. Time limits that count such time blame a peer for it: limits are set in the time of
this module. Leases, and whatever others count for this process, go on in real time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final
from weakref import WeakSet

BEAT_SECONDS: Final = 0.1
LATE_SECONDS: Final = 0.25
"""How long after a beat time goes on without the next one; a busy loop is late by less."""
_REMEMBERED: Final = 4_096
"""Gaps: at one in each 0.35 s, more than the 20 minutes of the longest limit."""


class LoopTime:
    """The time in which a loop turned, by its beats; pure, all moments in seconds of one clock."""

    def __init__(self, now: float) -> None:
        self.stood = 0.0
        """Seconds without a turn, up to the last beat."""
        self._beat = now
        self._gaps: deque[tuple[float, float]] = deque(maxlen=_REMEMBERED)

    def beat(self, now: float) -> float:
        """Note that the loop turns; return the seconds for which it did not."""
        until = self._beat + LATE_SECONDS
        gap = max(now - until, 0.0)
        if gap:
            self.stood += gap
            self._gaps.append((until, now))
        self._beat = now
        return gap

    def at(self, now: float) -> float:
        """Return the time, which stands still while a beat is overdue."""
        return min(now, self._beat + LATE_SECONDS) - self.stood

    def turned(self, seconds: float, now: float) -> float:
        """Return for how many of the last `seconds` the loop turned."""
        since = now - seconds
        overdue = self._beat + LATE_SECONDS
        stood = max(now - max(overdue, since), 0.0)
        for begin, end in reversed(self._gaps):
            if end <= since:
                break
            stood += end - max(begin, since)
        return seconds - stood


class _Beating:
    """Lets a loop beat, and moves the time limits set on it past the gaps."""

    def __init__(self, loop: asyncio.AbstractEventLoop, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self.time = LoopTime(monotonic())
        self.limits: WeakSet[asyncio.Timeout] = WeakSet()
        self._loop = loop
        self._handle = loop.call_later(BEAT_SECONDS, self._beat)

    def stop(self) -> None:
        self._handle.cancel()

    def _beat(self) -> None:
        # It is due before every limit that ran out meanwhile: timers go off in order.
        if gap := self.time.beat(self.monotonic()):
            for limit in tuple(self.limits):
                if (when := limit.when()) is not None:
                    with suppress(RuntimeError):  # it is not entered, or over
                        limit.reschedule(when + gap)
        self._handle = self._loop.call_later(BEAT_SECONDS, self._beat)


_beating: dict[asyncio.AbstractEventLoop, _Beating] = {}


@contextmanager
def counted_loop_time(monotonic: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Count the time in which the running loop turns; without, each second counts."""
    loop = asyncio.get_running_loop()
    if loop in _beating:
        yield
        return
    beating = _beating[loop] = _Beating(loop, monotonic)
    try:
        yield
    finally:
        beating.stop()
        del _beating[loop]


def loop_now() -> float:
    """Return the time of the running loop in seconds, those left out in which it did not turn."""
    loop = asyncio.get_running_loop()
    beating = _beating.get(loop)
    return loop.time() if beating is None else beating.time.at(beating.monotonic())


def turned(seconds: float) -> float:
    """Return for how many of the last `seconds` the running loop turned."""
    beating = _beating.get(asyncio.get_running_loop())
    return seconds if beating is None else beating.time.turned(seconds, beating.monotonic())


def limit(seconds: float) -> asyncio.Timeout:
    """Return `asyncio.timeout` for so many seconds in which the loop turns."""
    loop = asyncio.get_running_loop()
    timeout = asyncio.timeout_at(loop.time() + seconds)
    if (beating := _beating.get(loop)) is not None:
        beating.limits.add(timeout)
    return timeout


def limit_at(when: float) -> asyncio.Timeout:
    """Return `asyncio.timeout_at` for a moment in the time of `loop_now`."""
    return limit(when - loop_now())
