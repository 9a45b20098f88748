"""The stamped target: a chat endpoint that does exactly what it is told and knows when it did.

It is what a measuring client is measured against. Every frame's moment is taken immediately
before it is handed to the socket; both processes read the same monotonic clock. `GET /stamps`
hands the stamps out and forgets them.

    python -m loadtests.stamped        prints its port, serves until its input is closed
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import uvicorn
import uvloop

from contract.flows.chat import CHAT, Accept, ChatEvent, End, Failed, Send, StartReply, Success
from loadtests.children import child_environment, module_command
from loadtests.script import Script, ScriptRefused, parse_script

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend = Callable[[MutableMapping[str, Any]], Awaitable[None]]

WORD = "word "
SSE = [(b"content-type", b"text/event-stream"), (b"x-cutover-served", b"stamped")]
PROBLEM = [(b"content-type", b"application/problem+json")]
BACKLOG = 1_024


class Stamps(msgspec.Struct, frozen=True):
    """When the server read a request and handed each frame to the socket; monotonic ns.

    `sent` is (step, moment); `texts` the moments of those frames by which the text grew.
    """

    message_id: str
    received: int
    sent: tuple[tuple[str, int], ...]
    texts: tuple[int, ...]


class StampedTarget:
    """The ASGI application."""

    def __init__(self) -> None:
        self._stamps: list[Stamps] = []

    async def __call__(self, scope: Scope, receive: Receive, send: AsgiSend) -> None:
        """Serve one request: `POST /chat/sse` or `GET /stamps`."""
        if scope["type"] != "http":
            return
        if scope["path"] == "/stamps":
            await _answer(send, 200, msgspec.json.encode(self._stamps))
            self._stamps.clear()
            return
        received = time.monotonic_ns()
        body = msgspec.json.decode(await _body(receive))
        try:
            script = parse_script(body["content"])
        except ScriptRefused:
            await _answer(send, 400, b'{"code":"bad_script"}', PROBLEM)
            return
        play = _Play(script, receive, send)
        try:
            await play.perform()
        finally:
            self._stamps.append(
                Stamps(body["message_id"], received, tuple(play.sent), tuple(play.texts))
            )


class _Play:
    """One script being performed."""

    def __init__(self, script: Script, receive: Receive, send: AsgiSend) -> None:
        self._script = script
        self._receive = receive
        self._send = send
        self._began = asyncio.get_running_loop().time()
        self.sent: list[tuple[str, int]] = []
        self.texts: list[int] = []

    async def perform(self) -> None:
        await self._until(self._script.headers)
        if self._script.end == "refuse":
            await _answer(self._send, 409, b'{"code":"locked","status":409}', PROBLEM)
            return
        await self._send({"type": "http.response.start", "status": 200, "headers": SSE})
        await self._frame(Accept())
        await self._frame(StartReply())
        for number in range(self._script.spoken):
            await self._until(self._script.due(number))
            await self._frame(Send(WORD * (number + 1)))
        await self._end()

    async def _end(self) -> None:
        match self._script.end:
            case "cut":
                # An application that returns too early makes the server drop the connection.
                return
            case "stall":
                while (await self._receive())["type"] != "http.disconnect":
                    pass
                return
            case "success":
                await self._frame(Success(WORD * self._script.sends))
                await self._frame(End())
            case "failed":
                await self._frame(Failed())
                await self._frame(End())
            case "malformed":
                await self._bytes(b"data: {not json\n\n")
                await self._frame(End())
            case _:
                pass
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _until(self, seconds: float) -> None:
        left = self._began + seconds - asyncio.get_running_loop().time()
        if left > 0:
            await asyncio.sleep(left)

    async def _frame(self, event: ChatEvent) -> None:
        frame = CHAT.encode(event)
        at = time.monotonic_ns()
        self.sent.append((CHAT.name_of(event), at))
        if isinstance(event, Send):
            self.texts.append(at)
        await self._bytes(frame)

    async def _bytes(self, frame: bytes) -> None:
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})


async def _body(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)


async def _answer(
    send: AsgiSend, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers or []})
    await send({"type": "http.response.body", "body": body, "more_body": False})


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    """Run a stamped target in a process of its own; gives its address."""
    process = await asyncio.create_subprocess_exec(
        *module_command(__name__), stdin=PIPE, stdout=PIPE, env=child_environment()
    )
    if process.stdin is None or process.stdout is None:
        raise AssertionError
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.stdin.close()
        await process.wait()


async def _serve() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(BACKLOG)  # before the port is told: who hears of it may connect at once
    config = uvicorn.Config(
        StampedTarget(), log_level="critical", lifespan="off", access_log=False, backlog=BACKLOG
    )
    server = uvicorn.Server(config)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    waiting = asyncio.get_running_loop().run_in_executor(None, _wait_for_parent, server)
    await server.serve(sockets=[listener])
    await waiting


def _wait_for_parent(server: uvicorn.Server) -> None:
    sys.stdin.buffer.read()
    server.should_exit = True
    server.force_exit = True


def main() -> None:
    """Serve until standard input is closed."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve())


if __name__ == "__main__":
    main()
