"""Extensions of the ASGI scope: what a server can do that the protocol has no words for."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from contract.errors import CutoverError
from effects.tape import Signal

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from starlette.types import Message, Receive, Scope, Send


ABORT: Final = "cutover.abort"
"""Its `call` drops the connection without waiting for anything."""
PASSING: Final = "cutover.passing"
"""Its `call` sends bytes of a body there and then, or gives False."""
LEAVING: Final = "cutover.leaving"
"""Its `call` takes what is to be called when the client leaves, None for nothing any more."""


def extension(scope: Scope, name: str) -> Any:
    """Give what the server can do; None where it cannot."""
    return scope.get("extensions", {}).get(name, {}).get("call")


def drop(scope: Scope) -> bool:
    """Drop the connection of a request; gives whether the server lets us."""
    abort = extension(scope, ABORT)
    if abort is not None:
        abort()
    return abort is not None


class Parting:
    """Calls `leave` once the client has gone, until it is ended.

    A task that waits for that is only needed where the server tells it no other way.
    """

    def __init__(self, scope: Scope, receive: Receive, leave: Callable[[], None]) -> None:
        self._leave = leave
        self._gone = False
        self._noticed = Signal()
        self._task: asyncio.Task[None] | None = None
        self._tell = extension(scope, LEAVING)
        if self._tell is None:
            self._task = asyncio.get_running_loop().create_task(self._watch(receive))
        else:
            self._tell(self._left)

    def end(self) -> None:
        """Watch no longer."""
        if self._task is not None:
            self._task.cancel()
        else:
            self._tell(None)

    async def noticed(self, seconds: float) -> None:
        """Wait until it is known that the client has gone, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._gone:
                    await self._noticed.wait()

    def _left(self) -> None:
        self._gone = True
        self._leave()
        self._noticed.wake()

    async def _watch(self, receive: Receive) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self._left()
                return


class SlowClient(CutoverError):
    """A client has not taken what was sent to it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the client has taken nothing for {seconds:g} s")


class Deadline:
    """A `send` that waits for so many seconds: its block ends with `Unread` where it is stuck.

    One timer for the whole answer: a time limit for every frame would cost more than sending it.
    """

    def __init__(self, send: Send, seconds: float) -> None:
        self._send = send
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._limit = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, message: Message) -> None:
        """Send."""
        self._since = self._loop.time()
        await self._send(message)
        self._since = None

    async def __aenter__(self) -> Self:
        """Begin the block, which a message that is stuck for too long ends."""
        await self._limit.__aenter__()
        self._timer = self._loop.call_later(self._seconds, self._look)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the block; raises `Unread` where a message was stuck."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            raise SlowClient(self._seconds) from None

    def _look(self) -> None:
        now = self._loop.time()
        since = now if self._since is None else self._since
        due = since + self._seconds
        if now >= due:
            self._limit.reschedule(now)
        else:
            self._timer = self._loop.call_at(due, self._look)
