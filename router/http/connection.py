"""A client's connection: its bodies are limited, its disconnect is seen, and it must read.

What this server can do beyond ASGI is an extension of the scope.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from starlette.types import Message, Receive, Scope, Send

from contract.errors import CutoverError
from effects.loop_time import limit, loop_now
from router.config.schema import Settings
from router.problems import Problem

SMALL_BYTES: Final = 65_536
"""Bodies up to here need no reservation: clients that send large ones must not block others."""
ABORT: Final = "cutover.abort"
"""Scope extension: its `call` drops the connection without waiting for anything."""
WRITE_NOW: Final = "cutover.write_now"
"""Scope extension: its `call` writes bytes of a body in this turn, or returns False."""
ON_DISCONNECT: Final = "cutover.on_disconnect"
"""Scope extension: its `call` takes what to call when the client disconnects, or None."""


class BodyMemory:
    """Reserves memory for the large bodies that are being read, or served.

    `count_shed` is called with the problem of a request that finds no memory or takes too long, and
    returns it.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        count_shed: Callable[[Problem], Problem] = lambda problem: problem,
    ) -> None:
        self.reserved = 0
        self.count_shed = count_shed
        self._settings = settings

    async def read(self, scope: Scope, receive: Receive, most: int) -> bytes:
        """Read a request's body, which stays reserved until `release` is called with it.

        Raises `Problem`: 413 beyond `most` bytes, 503 where there is no memory, 408 where it does
        not arrive in time, 400 where the connection ends first.
        """
        limits = self._settings().limits
        # There may be more leading zeros than Python reads digits at once.
        declared = dict(scope["headers"]).get(b"content-length", b"").lstrip(b"0")
        if declared.isdigit() and int(declared) > most:
            raise _too_large(most)
        pieces: list[bytes] = []
        size = reserved = 0
        more, deadline = True, limit(limits.body_seconds)
        try:
            async with deadline:
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        why = "the connection ended inside the body"
                        raise Problem(400, "incomplete_body", why)
                    pieces.append(message.get("body", b""))
                    size += len(pieces[-1])
                    if size > most:
                        raise _too_large(most)
                    if size > SMALL_BYTES:
                        self._reserve(size - reserved, limits.body_bytes)
                        reserved = size
                    more = message.get("more_body", False)
        except TimeoutError:
            if not deadline.expired():
                raise
            slow = Problem(408, "slow_body", "the body did not arrive in time")
            raise self.count_shed(slow) from None
        finally:
            if more:  # refused, late or cancelled
                self.reserved -= reserved
        return b"".join(pieces)

    def release(self, body: bytes) -> None:
        """Release what `read` has reserved for a body; an empty one has nothing reserved."""
        if len(body) > SMALL_BYTES:
            self.reserved -= len(body)

    def _reserve(self, size: int, most: int) -> None:
        if self.reserved + size > most:
            why = "too many large requests are open"
            raise self.count_shed(Problem(503, "overloaded", why, retry_after=1))
        self.reserved += size


def _too_large(most: int) -> Problem:
    return Problem(413, "body_too_large", f"at most {most} bytes are accepted")


def extension(scope: Scope, name: str) -> Any:
    """Return what the server can do beyond ASGI; None where it cannot."""
    return scope.get("extensions", {}).get(name, {}).get("call")


def abort_connection(scope: Scope) -> bool:
    """Drop the connection of a request; returns whether the server can."""
    abort = extension(scope, ABORT)
    if abort is not None:
        abort()
    return abort is not None


class SlowClient(CutoverError):
    """A client has not read what was sent to it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the client has read nothing for {seconds:g} s")


class DisconnectWatch:
    """Calls `on_disconnect` once the client has disconnected, until it is stopped.

    A task that waits for that is only needed where the server reports it no other way.
    """

    def __init__(self, scope: Scope, receive: Receive, on_disconnect: Callable[[], object]) -> None:
        self._on_disconnect = on_disconnect
        self._disconnected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._register = extension(scope, ON_DISCONNECT)
        if self._register is None:
            self._task = asyncio.get_running_loop().create_task(self._watch(receive))
        else:
            self._register(self._notify)

    def stop(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
        else:
            self._register(None)

    async def wait(self, seconds: float) -> None:
        """Wait until the client has disconnected, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._disconnected.wait()

    def _notify(self) -> None:
        self._disconnected.set()
        self._on_disconnect()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._notify()


@asynccontextmanager
async def timed_send(send: Send, seconds: float) -> AsyncIterator[Send]:
    """Yield a `send` for one block, which raises `SlowClient` once a message is stuck so long."""
    timed = _TimedSend(send, seconds)
    try:
        async with timed.deadline:
            yield timed.send
    except TimeoutError:
        if not timed.deadline.expired():
            raise
        raise SlowClient(seconds) from None
    finally:
        timed.stop()


class _TimedSend:
    """A `send` with one timer for the whole response: one a frame would cost more than sending it.

    Stopped, it is in no cycle: its time limit holds the task of its request.
    """

    __slots__ = ("_loop", "_seconds", "_send", "_since", "_timer", "deadline")

    def __init__(self, send: Send, seconds: float) -> None:
        self.deadline = asyncio.timeout(None)
        self._send = send
        self._seconds = seconds
        self._since: float | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(seconds, self._check)

    async def send(self, message: Message) -> None:
        """Send a message."""
        self._since = loop_now()
        await self._send(message)
        self._since = None

    def stop(self) -> None:
        """Stop watching."""
        self._timer.cancel()

    def _check(self) -> None:
        now = loop_now()
        due = (now if self._since is None else self._since) + self._seconds
        if now >= due:
            self.deadline.reschedule(self._loop.time())
        else:
            self._timer = self._loop.call_later(due - now, self._check)
