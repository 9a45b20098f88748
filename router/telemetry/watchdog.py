"""A watchdog of the event loop: reports when it is blocked, and by which code.

A blocked loop can neither be interrupted nor rescued from within its process: a stack that may
block belongs behind an address.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
import time
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

_CHECKS = 4
"""Beats of the loop, and checks of them, within the time it may be blocked."""
_REMEMBERED = 60.0
"""Seconds an episode stays a fault after its end: while it lasts no request is answered."""


class Heartbeat:
    """Whether a loop turns, by its last beat; pure, all times in seconds."""

    def __init__(self, limit: float, now: float) -> None:
        self.episodes = 0
        self.limit = limit
        self.beat = now
        self._since: float | None = None
        self._longest = 0.0
        self._ended: float | None = None

    def check(self, now: float) -> bool:
        """Check the last beat; return whether an episode has just begun."""
        beat, since = self.beat, self._since
        if since is not None and beat != since:
            self._ended, self._since = beat, None
        if now - beat < self.limit:
            return False
        new = self._since is None
        self.episodes += new
        self._longest = now - beat if new else max(self._longest, now - beat)
        self._since = beat
        return new

    def fault(self, now: float) -> str | None:
        """Return the fault: while the loop is blocked, and for a minute after."""
        if self._since is None and (self._ended is None or now - self._ended >= _REMEMBERED):
            return None
        return f"was blocked for {self._longest:.1f} s; {self.episodes} times since the start"


class Watchdog:
    """Watches a loop from a thread of its own."""

    def __init__(self, limit: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.heartbeat = Heartbeat(limit, monotonic())
        self._monotonic = monotonic
        self._stop = threading.Event()

    @property
    def fault(self) -> str | None:
        """What is wrong with the loop, if anything."""
        return self.heartbeat.fault(self._monotonic())

    @contextmanager
    def watching(self) -> Iterator[Watchdog]:
        """Watch the running loop, whose thread this is, for as long as the block lasts.

        A limit of infinity watches nothing.
        """
        if math.isinf(self.heartbeat.limit):
            yield self
            return
        watched = threading.get_ident()
        thread = threading.Thread(target=self._watch, args=(watched,), name="watchdog", daemon=True)
        self._beat()
        thread.start()
        try:
            yield self
        finally:
            self._next_beat.cancel()
            self._stop.set()
            thread.join()

    def _beat(self) -> None:
        self.heartbeat.beat = self._monotonic()
        loop = asyncio.get_running_loop()
        self._next_beat = loop.call_later(self.heartbeat.limit / _CHECKS, self._beat)

    def _watch(self, thread: int) -> None:
        while not self._stop.wait(self.heartbeat.limit / _CHECKS):
            if self.heartbeat.check(self._monotonic()):
                log.error("the event loop is blocked in\n%s", _stack(thread))


def _stack(thread: int) -> str:
    """Return the code a thread is in: files, lines and functions, never a value."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - documented, for exactly this
    return "".join(traceback.format_stack(frame)) if frame is not None else "(no frame)"
