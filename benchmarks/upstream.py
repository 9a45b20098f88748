"""A service that streams chat completions as fast as it is asked to; each piece says when it left.

`python -m benchmarks.upstream EVENTS PAUSE_MS` prints its address and serves until it is ended.
"""

import asyncio
import json
import re
import sys
import time
from contextlib import suppress

import uvloop

EVENTS, PAUSE = int(sys.argv[1]), float(sys.argv[2]) / 1000
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


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = re.search(rb"(?i)content-length: (\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            writer.write(_HEAD)
            for _ in range(EVENTS):
                piece = b"%b %d%b" % (_PIECE, time.perf_counter_ns(), _TAIL)
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await asyncio.sleep(PAUSE)
            writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(_END), _END))
            await writer.drain()
    writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, backlog=4096)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())
