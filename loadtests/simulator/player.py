"""Playing a script to a client while it is connected: the only place that waits."""

import asyncio
import time
from types import TracebackType
from typing import Protocol, Self, assert_never

from starlette.types import Receive, Send

from loadtests.simulator.ledger import End, Record
from loadtests.simulator.profile import (
    Complete,
    Cut,
    ErrorEvent,
    HttpError,
    NoDone,
    Reset,
    SilentBeforeFirst,
    Stall,
)
from loadtests.simulator.script import AnswerScript, TimedChunk, stamped

LONGEST_RUN_S = 0.001


FIRST_ERROR = 400
MICROSECONDS_PER_SECOND = 1_000_000


class ConnectionControl(Protocol):
    """What the application may do with the connection under a request."""

    lost_ns: int

    def cut(self) -> None:
        """Close without a terminal chunk, after what was written has gone out."""
        ...

    def reset(self) -> None:
        """Drop at once, with whatever was not sent yet."""
        ...


class ClientPresence:
    """Watches a client through ASGI's `receive`; enter it once the body has been read."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self._yielded = 0.0
        self.disconnected = False

    async def __aenter__(self) -> Self:
        """Begin to watch."""
        self._watch = self._loop.create_task(self._until_disconnected())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop watching."""
        self._watch.cancel()

    async def until(self, moment: float | None) -> bool:
        """Wait for a moment of the loop's clock (None: for ever); whether the client left first."""
        if self.disconnected:
            return True
        now = self._loop.time()
        if moment is not None and moment <= now:
            if now - self._yielded > LONGEST_RUN_S:  # a stream that is late must hear of it too
                await asyncio.sleep(0)
                self._yielded = now
            return self.disconnected
        self._waiting = self._loop.create_future()
        timer = None if moment is None else self._loop.call_at(moment, self._wake)
        try:
            await self._waiting
        finally:
            if timer is not None:
                timer.cancel()
            self._waiting = None
        self._yielded = self._loop.time()
        return self.disconnected

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _until_disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.disconnected = True
        self._wake()


async def play_script(
    script: AnswerScript,
    record: Record,
    connection: ConnectionControl,
    receive: Receive,
    send: Send,
) -> End:
    """Play a script to its end or until the client leaves; return which it was."""
    if script.immediate:
        await _start(script, record, send)
        await _send(script, script.chunks[0], record, send, more=False)
        return "refused" if script.status >= FIRST_ERROR else "completed"
    async with ClientPresence(receive) as presence:
        return await _play_on(script, record, connection, presence, send)


async def _play_on(
    script: AnswerScript,
    record: Record,
    connection: ConnectionControl,
    presence: ClientPresence,
    send: Send,
) -> End:
    began = asyncio.get_running_loop().time()
    if script.headers_first:
        await _start(script, record, send)
    for chunk in script.chunks:
        if await presence.until(began + chunk.due_us / MICROSECONDS_PER_SECOND):
            return "cancelled"
        await _send(script, chunk, record, send, more=True)
    return await _end(script, connection, presence, send)


async def _end(
    script: AnswerScript, connection: ConnectionControl, presence: ClientPresence, send: Send
) -> End:
    match script.ending:
        case Complete() | NoDone() | ErrorEvent() | HttpError():
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return "completed"
        case Stall() | SilentBeforeFirst():
            await presence.until(None)
            return "cancelled"
        case Cut():
            connection.cut()
            return "cut"
        case Reset():
            connection.reset()
            return "cut"
        case _:
            assert_never(script.ending)


async def _start(script: AnswerScript, record: Record, send: Send) -> None:
    headers = [
        (b"content-type", script.content_type),
        (b"x-request-id", b"req_%d" % record.number),
        *script.headers,
    ]
    await send({"type": "http.response.start", "status": script.status, "headers": headers})


async def _send(
    script: AnswerScript, chunk: TimedChunk, record: Record, send: Send, *, more: bool
) -> None:
    wire = stamped(chunk.wire, time.monotonic_ns()) if script.stamped else chunk.wire
    record.sent(chunk.count)
    await send({"type": "http.response.body", "body": wire, "more_body": more})
