"""An answer on its way: its head, then its body, piece by piece as the bytes come."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from contract.errors import CutoverError
from effects.tape import Signal
from router.remote.http1.parsing import AnswerParser

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.remote.headers import Headers

PATIENCE = 1.0
"""Seconds a stack has to end an answer after its last frame; then the connection is dropped."""


class AnswerLost(CutoverError):
    """An answer broke off, or is none."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the answer is lost: {why}")


class Line(Protocol):
    """What an answer asks of its connection."""

    def pause(self) -> None:
        """Read nothing for the time being."""
        ...

    def resume(self) -> None:
        """Read on."""
        ...

    def drop(self) -> None:
        """End the connection, now."""
        ...


class Answer:
    """What a stack answers; `over` when nothing more will come.

    The body goes to whoever listens in the same turn of the loop in which its bytes came. `changed`
    wakes those who wait for the head or for the end.
    """

    def __init__(self, line: Line) -> None:
        self.changed = Signal()
        self.over = False
        self._line = line
        self._parser = AnswerParser()
        self._held = b""
        self._listener: Callable[[bytes], None] | None = None
        self._error: Exception | None = None
        self._patience: asyncio.TimerHandle | None = None

    @property
    def status(self) -> int:
        """Status of the answer; 0 before its head has come."""
        return self._parser.status

    @property
    def headers(self) -> Headers:
        """Headers of the answer, names in lower case."""
        return self._parser.headers

    def header(self, name: bytes) -> bytes:
        """Give the first value of a header; empty where there is none."""
        return next((value for key, value in self.headers if key == name), b"")

    async def headed(self) -> None:
        """Wait for the head; raises `AnswerLost`, and drops the connection where interrupted."""
        try:
            while not self._parser.headed:
                self.check()
                await self.changed.wait()
        except BaseException:
            self.close()
            raise

    def listen(self, listener: Callable[[bytes], None]) -> None:
        """Give the body to `listener`, with what has come of it; what it raises, `check` does."""
        self._listener = listener
        if self._held:
            held, self._held = self._held, b""
            self._tell(listener, held)

    async def read(self, most: int) -> bytes:
        """Read the body to its end, or until it has more than `most` bytes; raises `AnswerLost`."""
        body = bytearray()
        self.listen(body.extend)
        while not self.over and len(body) <= most:
            await self.changed.wait()
        self.check()
        return bytes(body)

    def check(self) -> None:
        """Raise what the answer has broken with, if it has."""
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """Read nothing for the time being."""
        if not self.over:
            self._line.pause()

    def resume(self) -> None:
        """Read on."""
        if not self.over:
            self._line.resume()

    def close(self) -> None:
        """Have nothing more to do with it: where it has not ended, its connection is dropped."""
        self._listener = _ignore
        if not self.over:
            self._over()
            self._line.drop()

    def drain(self) -> None:
        """Let it end, within `PATIENCE`, so that its connection is used again."""
        self._listener = _ignore
        if not self.over:
            self._line.resume()
            self._patience = asyncio.get_running_loop().call_later(PATIENCE, self.close)

    def feed(self, data: bytes) -> bool:
        """Take bytes of the connection; gives whether that is free for another answer now."""
        parser = self._parser
        body = parser.feed(data)
        if body:
            self._hear(body)
        elif parser.headed:
            self.changed.wake()
        if parser.complete or parser.fault:
            self._ended()
        return parser.reusable and parser.complete and self._error is None

    def end(self, why: str) -> None:
        """Note that the connection has ended."""
        if not self.over:
            self._parser.end()
            self._ended(why)

    def _hear(self, body: bytes) -> None:
        if self._listener is None:
            self._held += body
            self.changed.wake()
        else:
            self._tell(self._listener, body)

    def _tell(self, listener: Callable[[bytes], None], body: bytes) -> None:
        try:
            listener(body)
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits, not to the loop
            self._error = error
            self.close()

    def _ended(self, why: str = "") -> None:
        if self._parser.fault and self._error is None:
            self._error = AnswerLost(why or self._parser.fault)
        self._over()

    def _over(self) -> None:
        self.over = True
        if self._patience is not None:
            self._patience.cancel()
        self.changed.wake()


def _ignore(_: bytes) -> None:
    return
