"""A client that opens many streams at once, and notes when each piece left and came."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

_LEFT = re.compile(rb'"content":" (\d+)"')


@dataclass
class Heard:
    """What a client heard: seconds to each first piece, seconds each piece took, whole streams."""

    first: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    whole: int = 0
    lost: int = 0


class _Stream(asyncio.Protocol):
    def __init__(self, heard: Heard, request: bytes, events: int, wanted: int) -> None:
        self._heard, self._request, self._events, self._wanted = heard, request, events, wanted
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def _ask(self) -> None:
        self._count, self._raw, self._text, self._began = 0, b"", b"", time.perf_counter()
        self._in_body = False
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter_ns()
        self._raw += data
        ended = self._take_chunks()
        end = 0
        for found in _LEFT.finditer(self._text):
            end = found.end()
            if not self._count:
                self._heard.first.append(now / 1e9 - self._began)
            self._count += 1
            self._heard.late.append((now - int(found[1])) / 1e9)
        self._text = self._text[end:]
        if ended:
            self._heard.whole += self._count == self._events
            self._heard.lost += self._count != self._events
            self._wanted -= 1
            if self._wanted > 0:
                self._ask()
            else:
                self._transport.close()

    def _take_chunks(self) -> bool:
        """Move whole chunks of the body to its text; return whether the body has ended."""
        if not self._in_body:
            _, head, rest = self._raw.partition(b"\r\n\r\n")
            if not head:
                return False
            self._in_body, self._raw = True, rest
        at = 0
        while (line := self._raw.find(b"\r\n", at)) >= 0:
            size = int(self._raw[at:line], 16)
            if len(self._raw) < line + 2 + size + 2:
                break
            self._text += self._raw[line + 2 : line + 2 + size]
            at = line + 2 + size + 2
            if not size:
                return True
        self._raw = self._raw[at:]
        return False

    def connection_lost(self, _: Exception | None) -> None:
        if self._wanted > 0:
            self._heard.lost += self._wanted
        if not self.over.done():
            self.over.set_result(None)


async def listen(url: str, streams: int, each: int, events: int, spread: float = 0.0) -> Heard:
    """Open `streams`, spread over some seconds, `each` times, and read them to their ends."""
    at, heard = urlsplit(url), Heard()
    body = b'{"model":"m","user":"u","messages":[{"role":"user","content":"hi"}],"stream":true}'
    request = (
        f"POST {at.path} HTTP/1.1\r\nhost: {at.netloc}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode() + body
    loop = asyncio.get_running_loop()
    opened = []
    for number in range(streams):
        _, stream = await loop.create_connection(
            lambda: _Stream(heard, request, events, each), "127.0.0.1", at.port or 80
        )
        opened.append(stream.over)
        if spread:
            await asyncio.sleep(spread / streams * (number % 7 + 1) / 4)
    await asyncio.gather(*opened)
    return heard
