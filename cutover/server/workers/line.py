"""The line between a supervisor and a worker: open as long as both of them live."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_READY = b"r"


class Line:
    """One end of a line.

    A worker says once that it serves. The supervisor says nothing: when its end is closed, by
    itself or by its death, the worker is to stop.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    @classmethod
    def pair(cls) -> tuple[Line, Line]:
        """Make a line; the ends are alike."""
        one, other = socket.socketpair()
        one.settimeout(0)
        other.settimeout(0)
        return cls(one), cls(other)

    def fileno(self) -> int:
        """Give the descriptor, for a selector."""
        return self._end.fileno()

    def say_ready(self) -> None:
        """Tell the supervisor that requests are served; one that is gone is told nothing."""
        try:
            self._end.send(_READY)
        except OSError:
            return

    def heard_ready(self) -> bool:
        """Tell whether the worker has said that it serves, since this was asked last."""
        try:
            return self._end.recv(64) != b""
        except OSError:
            return False

    def when_closed(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        """Call `stop` once the other end is closed."""

        def readable() -> None:
            # Whatever it is: a supervisor has nothing to say.
            loop.remove_reader(self._end)
            stop()

        loop.add_reader(self._end, readable)

    def close(self) -> None:
        """Close this end; idempotent."""
        self._end.close()
