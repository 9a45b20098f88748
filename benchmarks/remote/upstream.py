"""A service that streams chat events as fast as a wire takes them, or so many a second.

`python -m benchmarks.remote.upstream`: prints `listening on URL`. `?rate=10` paces the stream,
each event with the moment it was sent; `?events=64` says how many there are.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import cast
from urllib.parse import parse_qsl, urlsplit

import uvloop

EVENTS = 64
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_LAST = b"0\r\n\r\n"
_BLANK = b"\r\n\r\n"
_PIECE = "cloud "
_LETTERS = str.maketrans("0123456789", "abcdefghij")


def frame(step: str, content: str | None = None) -> bytes:
    """Write a chat event as its frame."""
    text = "" if content is None else f',"content":"{content}"'
    return f'data: {{"step":"{step}"{text}}}\n\n'.encode()


def stamp() -> str:
    """Write the moment, in nanoseconds of the machine's clock, in letters: `a` is 0.

    Nineteen digits in every event look like personal data, and would be searched for it.
    """
    return f"{time.monotonic_ns():019d}".translate(_LETTERS)


def chunk(data: bytes) -> bytes:
    """Write a chunk of a response's body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def answer(events: int) -> list[bytes]:
    """Write an answer of so many events: its text grows by a word at a time."""
    texts = [_PIECE * (number + 1) for number in range(events - 4)]
    sends = [frame("SEND", text) for text in texts]
    ends = [frame("SUCCESS", texts[-1] if texts else ""), frame("END")]
    return [frame("ACCEPT"), frame("START_REPLY"), *sends, *ends]


class Upstream(asyncio.Protocol):
    """One connection: answers each request when its body is there."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._seen = b""
        self._left = 0
        self._rate = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        # uvloop's is one by its methods only.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _: Exception | None) -> None:
        """Stop sending."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Read requests; the length of their bodies is always declared."""
        self._seen += data
        head, blank, body = self._seen.partition(_BLANK)
        if not blank:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
        if len(body) < length:
            return
        self._seen = body[length:]
        query = dict(parse_qsl(urlsplit(head.split(b" ", 2)[1].decode()).query))
        self._answer(int(query.get("events", EVENTS)), float(query.get("rate", 0)))

    def _answer(self, events: int, rate: float) -> None:
        self._rate, self._left = rate, events - 4
        self._write(_HEAD)
        if not rate:
            for data in _whole(events):
                self._write(data)
            self._write(_LAST)
            return
        self._write(chunk(frame("ACCEPT") + frame("START_REPLY")))
        self._due = time.monotonic() + 1 / rate
        self._pace()

    def _pace(self) -> None:
        self._write(chunk(frame("SEND", stamp())))
        self._left -= 1
        if self._left > 0:
            self._timer = asyncio.get_running_loop().call_later(
                max(0.0, self._due - time.monotonic()), self._pace
            )
            self._due += 1 / self._rate
        else:
            self._write(chunk(frame("SUCCESS", "") + frame("END")) + _LAST)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


_answers: dict[int, list[bytes]] = {}


def _whole(events: int) -> list[bytes]:
    if events not in _answers:
        _answers[events] = [chunk(data) for data in answer(events)]
    return _answers[events]


async def main() -> None:
    """Serve until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0, backlog=4_096)
    host, port = server.sockets[0].getsockname()
    sys.stdout.write(f"listening on http://{host}:{port}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
