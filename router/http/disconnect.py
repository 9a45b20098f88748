"""Clients that disconnect, or stop reading; and what this server can do beyond ASGI about them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from starlette.types import Message, Receive, Scope, Send

from contract.errors import CutoverError
from effects.tape import Signal

ABORT: Final = "cutover.abort"
"""Scope extension: its `call` drops the connection without waiting for anything."""
WRITE_NOW: Final = "cutover.write_now"
"""Scope extension: its `call` writes bytes of a body in this turn, or returns False."""
ON_DISCONNECT: Final = "cutover.on_disconnect"
"""Scope extension: its `call` takes what to call when the client disconnects, or None."""


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
        super().__init__(f"the client has taken nothing for {seconds:g} s")


class DisconnectWatch:
    """Calls `on_disconnect` once the client has disconnected, until it is stopped.

    A task that waits for that is only needed where the server reports it no other way.
    """

    def __init__(self, scope: Scope, receive: Receive, on_disconnect: Callable[[], None]) -> None:
        self._on_disconnect = on_disconnect
        self._disconnected = Signal()
        self._seen = False
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
                while not self._seen:
                    await self._disconnected.wait()

    def _notify(self) -> None:
        self._seen = True
        self._on_disconnect()
        self._disconnected.wake()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._notify()


class TimedSend:
    """A `send` whose block raises `SlowClient` where one message is stuck for `seconds`.

    One timer for the whole response: a time limit for every frame would cost more than sending it.
    """

    def __init__(self, send: Send, seconds: float) -> None:
        self._send = send
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._limit = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, message: Message) -> None:
        """Send a message."""
        self._since = self._loop.time()
        await self._send(message)
        self._since = None

    async def __aenter__(self) -> Self:
        """Begin the block that a stuck message ends."""
        await self._limit.__aenter__()
        self._timer = self._loop.call_later(self._seconds, self._check)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the block; raises `SlowClient` where a message was stuck."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            raise SlowClient(self._seconds) from None

    def _check(self) -> None:
        now = self._loop.time()
        due = (now if self._since is None else self._since) + self._seconds
        if now >= due:
            self._limit.reschedule(now)
        else:
            self._timer = self._loop.call_at(due, self._check)
