"""`python -m tests.support.stamping LOG SLOWER FAULTS`: streams at drawn times, and stamps them.

Each line of the log is one request: its id, the moments (seconds, monotonic) when it was read and
when its first text and its terminal event went out, and how it was made to end.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).parents[2]

FIRST_SECONDS, WHOLE_SECONDS = 0.12, 0.3
"""Medians of what is drawn, log-normal, for the first text and the rest."""
FAULTS = {7: "refused", 11: "truncated", 13: "failed"}
"""Each n-th request is made to end so."""
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"


def chunk(data: str) -> bytes:
    """Return an SSE event as a chunk of HTTP."""
    event = f"data: {data}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


def text(piece: str) -> bytes:
    """Return a piece of text, as chat completions have it."""
    return chunk(json.dumps({"choices": [{"index": 0, "delta": {"content": piece}}]}))


STOP = chunk('{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}')


class Stamping:
    """A server whose streams are known to the moment."""

    def __init__(self, log: BinaryIO, slower: float, faults: Mapping[int, str]) -> None:
        self._log, self._slower, self._faults = log, slower, faults
        self._number = count(1)
        self._chance = random.Random(1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._answer(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length or 0))
        number, read = next(self._number), time.monotonic()
        ends = next((end for each, end in self._faults.items() if number % each == 0), "complete")
        stamps = {"id": str(number), "read": read, "ends": ends, "first": None, "ended": None}
        first = self._slower * FIRST_SECONDS * self._chance.lognormvariate(0, 0.5)
        rest = self._slower * WHOLE_SECONDS * self._chance.lognormvariate(0, 0.3)
        if ends == "refused":
            writer.write(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")
        else:
            writer.write(HEAD + f"x-cutover-exchange: {number}\r\n\r\n".encode())
            await asyncio.sleep(first)
            stamps["first"] = time.monotonic()
            writer.write(text("Hello"))
            for _ in range(4):
                await asyncio.sleep(rest / 4)
                writer.write(text(" there"))
            if ends == "failed":
                writer.write(chunk('{"error":{"message":"no","code":"overloaded"}}'))
            elif ends == "complete":
                stamps["ended"] = time.monotonic()
                writer.write(STOP + chunk("[DONE]"))
            writer.write(b"0\r\n\r\n" if ends != "truncated" else b"")
        await writer.drain()
        self._log.write(json.dumps(stamps).encode() + b"\n")


@contextmanager
def stamping(
    folder: Path, slower: float = 1.0, *, faults: bool = False
) -> Iterator[tuple[str, subprocess.Popen[str], Path]]:
    """Serve streams whose moments are logged: the address, the process, the log."""
    log = folder / "stamps.jsonl"
    command = [sys.executable, "-m", "tests.support.stamping", str(log), str(slower)]
    command += ["faults"] if faults else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}", server, log
        server.kill()


async def main(path: Path, slower: float, faults: Mapping[int, str]) -> None:
    """Serve until the process is ended, after one line with the port."""
    with path.open("wb", buffering=0) as log:
        serve = Stamping(log, slower, faults).serve
        server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
        sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()
        async with server:
            await server.serve_forever()


if __name__ == "__main__":
    _, log, slower, *faults = sys.argv
    asyncio.run(main(Path(log), float(slower), FAULTS if faults else {}))
