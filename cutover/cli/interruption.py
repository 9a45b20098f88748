"""Breaking off: the first signal asks a command to end with what it has, a second one ends it."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class BrokenOff:
    """Whether a command was asked to end, and by which signal."""

    def __init__(self) -> None:
        self._signal: signal.Signals | None = None

    @property
    def asked(self) -> bool:
        """Whether a signal came."""
        return self._signal is not None

    @property
    def status(self) -> int:
        """Give the exit status of a command that was broken off; 0 where it was not."""
        return 0 if self._signal is None else 128 + self._signal

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """Note the first signal of the block, in the running loop; a second one ends the process.

        Those that are ignored (`nohup`) stay ignored.
        """
        loop = asyncio.get_running_loop()
        heard = [one for one in ENDING if signal.getsignal(one) is not signal.SIG_IGN]

        def leave() -> None:
            while heard:
                loop.remove_signal_handler(heard.pop())

        def hear(number: signal.Signals) -> None:
            self._signal = number
            leave()

        for one in heard:
            loop.add_signal_handler(one, hear, one)
        try:
            yield
        finally:
            leave()
