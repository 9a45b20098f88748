"""A connection to a remote stack: one request at a time, its answer as the bytes arrive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from contract.errors import CutoverError
from effects.tape import Signal
from router.remote.http1.parser import AnswerParser

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.remote.headers import HeaderLines


PATIENCE = 1.0
"""Seconds a stack has to end an answer after its last frame; then the connection is dropped."""


class AnswerLost(CutoverError):
    """An answer broke off, or is not HTTP."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the answer is lost: {why}")


class Answer:
    """The answer to one request; `over` when nothing more will arrive.

    The body goes to the listener in the turn of the loop in which its bytes arrived. `changed`
    wakes tasks that wait for the head or for the end.
    """

    def __init__(self, connection: Connection) -> None:
        self.changed = Signal()
        self.over = False
        self._connection = connection
        self._parser = AnswerParser()
        self._held = b""
        self._listener: Callable[[bytes], None] | None = None
        self._error: Exception | None = None
        self._patience: asyncio.TimerHandle | None = None

    @property
    def status(self) -> int:
        """Status of the answer; 0 before its head has arrived."""
        return self._parser.status

    @property
    def headers(self) -> HeaderLines:
        """Headers of the answer, names in lower case."""
        return self._parser.headers

    def header(self, name: bytes) -> bytes:
        """Return the first value of a header; empty where there is none."""
        return next((value for key, value in self.headers if key == name), b"")

    async def headed(self) -> None:
        """Wait for the head; raises `AnswerLost`, and drops the connection when it is cancelled."""
        try:
            while not self._parser.headed:
                self.check()
                await self.changed.wait()
        except BaseException:
            self.close()
            raise

    def listen(self, listener: Callable[[bytes], None]) -> None:
        """Pass the body on to `listener`, also what has arrived; `check` raises what it raised."""
        self._listener = listener
        if self._held:
            held, self._held = self._held, b""
            self._pass_on(listener, held)

    async def read(self, most: int) -> bytes:
        """Read the body to its end, or until it has more than `most` bytes; raises `AnswerLost`."""
        body = bytearray()
        self.listen(body.extend)
        while not self.over and len(body) <= most:
            await self.changed.wait()
        self.check()
        return bytes(body)

    def check(self) -> None:
        """Raise the error of the answer, if there is one."""
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """Pause reading."""
        if not self.over:
            self._connection.pause()

    def resume(self) -> None:
        """Resume reading."""
        if not self.over:
            self._connection.resume()

    def close(self) -> None:
        """Release the answer; where it has not ended, drop its connection."""
        self._listener = _ignore
        if not self.over:
            self._finish()
            self._connection.drop()

    def drain(self) -> None:
        """Let it end within `PATIENCE`, so that its connection can be used again."""
        self._listener = _ignore
        if not self.over:
            self._connection.resume()
            self._patience = asyncio.get_running_loop().call_later(PATIENCE, self.close)

    def feed(self, data: bytes) -> bool:
        """Take bytes; return whether the connection is free for another request."""
        parser = self._parser
        body = parser.feed(data)
        if body:
            self._take_body(body)
        elif parser.headed:
            self.changed.wake()
        if parser.complete or parser.fault:
            self._check_end()
        return parser.reusable and parser.complete and self._error is None

    def end(self, why: str) -> None:
        """Take the end of the connection."""
        if not self.over:
            self._parser.end()
            self._check_end(why)

    def _take_body(self, body: bytes) -> None:
        if self._listener is None:
            self._held += body
            self.changed.wake()
        else:
            self._pass_on(self._listener, body)

    def _pass_on(self, listener: Callable[[bytes], None], body: bytes) -> None:
        try:
            listener(body)
        except Exception as error:  # noqa: BLE001 - for the task that waits, not for the loop
            self._error = error
            self.close()

    def _check_end(self, why: str = "") -> None:
        if self._parser.fault and self._error is None:
            self._error = AnswerLost(why or self._parser.fault)
        self._finish()

    def _finish(self) -> None:
        self.over = True
        if self._patience is not None:
            self._patience.cancel()
        self.changed.wake()


def _ignore(_: bytes) -> None:
    return


class Connection(asyncio.Protocol):
    """Sends requests, and passes arriving bytes on to the answer.

    `free` is called when it can take another request, `lost` when it has ended.
    """

    def __init__(
        self, free: Callable[[Connection], None], lost: Callable[[Connection], None]
    ) -> None:
        self._free = free
        self._lost = lost
        self._answer: Answer | None = None
        self._transport: asyncio.Transport | None = None
        self._paused = False

    @property
    def closing(self) -> bool:
        """Whether it can take no more requests."""
        return self._transport is None or self._transport.is_closing()

    def ask(self, request: bytes) -> Answer:
        """Send a request; return its answer, still empty."""
        answer = self._answer = Answer(self)
        if self._transport is None or self.closing:
            answer.end("the connection was closed")
        else:
            self._transport.write(request)
        return answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        # uvloop's is one by its methods only.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on to the open answer."""
        answer = self._answer
        if answer is None:
            self.drop()  # bytes without a request
        elif answer.feed(data) and self._sent:
            self._answer = None
            self.resume()
            self._free(self)
        elif answer.over:
            self.drop()

    def connection_lost(self, error: Exception | None) -> None:
        """End the answer, and report the loss to the client."""
        self._transport = None
        if self._answer is not None:
            self._answer.end(type(error).__name__ if error else "")
            self._answer = None
        self._lost(self)

    @property
    def _sent(self) -> bool:
        """Whether the whole request is sent: one that answers early may never read the rest."""
        return self._transport is not None and not self._transport.get_write_buffer_size()

    def pause(self) -> None:
        """Pause reading."""
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        if self._transport is not None and self._paused:
            self._paused = False
            self._transport.resume_reading()

    def drop(self) -> None:
        """Abort it: the stack notices as it would without a router."""
        if self._transport is not None:
            self._transport.abort()
