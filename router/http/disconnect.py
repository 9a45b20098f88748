"""Clients that disconnect, or stop reading; and what this server can do beyond ASGI about them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from starlette.types import Message, Receive, Scope, Send

from contract.errors import CutoverError
from effects.loop_time import loop_now

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
    """Yield a `send` for one block, which raises `SlowClient` once a message is stuck so long.

    One timer for the whole response: a time limit for every frame would cost more than sending it.
    """
    loop = asyncio.get_running_loop()
    limit = asyncio.timeout(None)
    since: float | None = None
    timer: asyncio.TimerHandle

    async def timed(message: Message) -> None:
        nonlocal since
        since = loop_now()
        await send(message)
        since = None

    def check() -> None:
        nonlocal timer
        now = loop_now()
        due = (now if since is None else since) + seconds
        if now >= due:
            limit.reschedule(loop.time())
        else:
            timer = loop.call_later(due - now, check)

    timer = loop.call_later(seconds, check)
    try:
        async with limit:
            yield timed
    except TimeoutError:
        if not limit.expired():
            raise
        raise SlowClient(seconds) from None
    finally:
        timer.cancel()
