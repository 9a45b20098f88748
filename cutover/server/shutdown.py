"""Leaving: once all is closed the process ends, whatever in it does not."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

PATIENCE = 3.0
"""Seconds that tasks and threads get to end once everything has been closed and kept."""


class Leaving:
    """A block around a loop's run: a stack that swallows its cancellation must not keep it open.

    Nor must a tool's thread that never returns. `end` ends the process without waiting for them.
    """

    def __init__(self, seconds: float = PATIENCE, end: Callable[[int], object] = os._exit) -> None:
        self._seconds = seconds
        self._end = end
        self._before: set[threading.Thread] = set()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        self._before = set(threading.enumerate())
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline = time.monotonic() + self._seconds
        for thread in self._threads():
            thread.join(max(deadline - time.monotonic(), 0.0))
        if left := self._threads():
            self._leave(f"threads: {', '.join(thread.name for thread in left)}")

    def begin(self) -> None:
        """All is closed: what the running loop still holds has only so long."""
        loop = asyncio.get_running_loop()
        self._timer = threading.Timer(self._seconds, self._out, (loop, asyncio.current_task()))
        self._timer.daemon = True
        self._timer.start()

    def _out(self, loop: asyncio.AbstractEventLoop, us: asyncio.Task[object] | None) -> None:
        names = sorted(task.get_name() for task in asyncio.all_tasks(loop) - {us})
        self._leave(f"tasks: {', '.join(names)}")

    def _leave(self, what: str) -> None:
        log.error("the process ends without what does not: %s", what)
        logging.shutdown()
        self._end(0)

    def _threads(self) -> list[threading.Thread]:
        """Those that would keep the interpreter from ending."""
        return [one for one in threading.enumerate() if one not in self._before and not one.daemon]
