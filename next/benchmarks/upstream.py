"""A service that streams chat completions as fast as it is asked to; each piece says when it left.

`python -m benchmarks.upstream EVENTS PAUSE_MS` prints its address and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import cast

import uvloop

_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    b"connection: keep-alive\r\n\r\n"
)


def _event(delta: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": delta}, "finish_reason": finish}
    chunk = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "choices": [choice]}
    return f"data: {json.dumps(chunk, separators=(',', ':'))}\n\n".encode()


_PIECE, _TAIL = _event("@").split(b"@")
_END = _event("", "stop") + b"data: [DONE]\n\n"


class _Connection(asyncio.Protocol):
    def __init__(self, events: int, pause: float) -> None:
        self._events, self._pause = events, pause
        self._received = b""
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        named = (line.partition(b": ") for line in head.lower().split(b"\r\n"))
        length = next((int(value) for name, _, value in named if name == b"content-length"), 0)
        if len(body) >= length:
            self._received = body[length:]
            self._answering = asyncio.get_running_loop().create_task(self._answer())

    def connection_lost(self, _: Exception | None) -> None:
        if self._answering is not None:
            self._answering.cancel()

    async def _answer(self) -> None:
        self._transport.write(_HEAD)
        for _ in range(self._events):
            piece = b"%b %d%b" % (_PIECE, time.perf_counter_ns(), _TAIL)
            self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await asyncio.sleep(self._pause)
        self._transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(_END), _END))


async def _serve(events: int, pause: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: _Connection(events, pause), "127.0.0.1", 0, backlog=4096
    )
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), float(sys.argv[2]) / 1000))
