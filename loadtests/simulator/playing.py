"""Playing a script to a client: the only place that waits."""

import asyncio
import time
from typing import assert_never

from starlette.types import Receive, Send

from loadtests.simulator.connection import Line
from loadtests.simulator.ending import (
    Complete,
    Cut,
    ErrorEvent,
    HttpError,
    NoDone,
    Reset,
    SilentBeforeFirst,
    Stall,
)
from loadtests.simulator.ledger import End, Record
from loadtests.simulator.presence import Presence
from loadtests.simulator.script import Chunk, Script, stamped

FIRST_ERROR = 400
MICROSECONDS = 1_000_000


async def play(script: Script, record: Record, line: Line, receive: Receive, send: Send) -> End:
    """Play a script to its end or until the client leaves, and say which it was."""
    if script.immediate:
        await _start(script, record, send)
        await _send(script, script.chunks[0], record, send, more=False)
        return "refused" if script.status >= FIRST_ERROR else "completed"
    async with Presence(receive) as presence:
        return await _play_on(script, record, line, presence, send)


async def _play_on(
    script: Script, record: Record, line: Line, presence: Presence, send: Send
) -> End:
    began = asyncio.get_running_loop().time()
    if script.headers_first:
        await _start(script, record, send)
    for chunk in script.chunks:
        if await presence.until(began + chunk.due_us / MICROSECONDS):
            return "cancelled"
        await _send(script, chunk, record, send, more=True)
    return await _end(script, line, presence, send)


async def _end(script: Script, line: Line, presence: Presence, send: Send) -> End:
    match script.ending:
        case Complete() | NoDone() | ErrorEvent() | HttpError():
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return "completed"
        case Stall() | SilentBeforeFirst():
            await presence.until(None)
            return "cancelled"
        case Cut():
            line.cut()
            return "cut"
        case Reset():
            line.reset()
            return "cut"
        case _:
            assert_never(script.ending)


async def _start(script: Script, record: Record, send: Send) -> None:
    headers = [
        (b"content-type", script.content_type),
        (b"x-request-id", b"req_%d" % record.number),
        *script.headers,
    ]
    await send({"type": "http.response.start", "status": script.status, "headers": headers})


async def _send(script: Script, chunk: Chunk, record: Record, send: Send, *, more: bool) -> None:
    wire = stamped(chunk.wire, time.monotonic_ns()) if script.stamped else chunk.wire
    record.sent(chunk.count)
    await send({"type": "http.response.body", "body": wire, "more_body": more})
