"""Signals as something to wait for, beside other things."""

from __future__ import annotations

import select
import signal
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cutover.server.workers.line import Line

STOPPING = (signal.SIGTERM, signal.SIGINT)
_HEARD = (*STOPPING, signal.SIGCHLD)


class Signals:
    """Hears of signals in the main thread; made by `hearing()`."""

    def __init__(self, receiving: socket.socket) -> None:
        self._receiving = receiving

    def wait(self, lines: Sequence[Line], seconds: float) -> list[int]:
        """Wait for a signal, for anything on a line, or so long; gives the signals that came."""
        ends = [self._receiving.fileno(), *(line.fileno() for line in lines)]
        select.select(ends, [], [], seconds)
        try:
            return list(self._receiving.recv(4_096))
        except BlockingIOError:
            return []


@contextmanager
def hearing() -> Iterator[Signals]:
    """Hear of signals for as long as the block lasts."""
    receiving, sending = socket.socketpair()
    with receiving, sending:
        receiving.settimeout(0)
        sending.settimeout(0)
        # They need a handler to be written to the socket; that is all this one is for.
        before = {one: signal.signal(one, lambda *_: None) for one in _HEARD}
        signal.set_wakeup_fd(sending.fileno())
        try:
            yield Signals(receiving)
        finally:
            signal.set_wakeup_fd(-1)
            for one, handler in before.items():
                signal.signal(one, handler)


def forget() -> None:
    """In a forked process: be ended by signals as any other is, and wake nobody elsewhere."""
    signal.set_wakeup_fd(-1)
    for one in _HEARD:
        signal.signal(one, signal.SIG_DFL)
