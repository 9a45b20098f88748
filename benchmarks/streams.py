"""A client that opens many streams at once, and notes when each piece left and came."""

import asyncio
import re
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import httptools

EVENTS = 64
"""Events of a stream whose throughput is measured."""
ROUNDS, CALLS, AT_ONCE = 5, 25, 20
Rates = dict[str, list[float]]
_LEFT = re.compile(rb'"content":" (\d+)"')


@dataclass
class Heard:
    """What a client heard: seconds to each first piece, seconds each piece took, lost streams."""

    first: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    lost: int = 0


class _Stream(asyncio.Protocol):
    def __init__(self, heard: Heard, request: bytes, events: int, wanted: int) -> None:
        self._heard, self._request, self._events, self._wanted = heard, request, events, wanted
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def _ask(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._count, self._text, self._ended, self._began = 0, b"", False, time.perf_counter()
        self._transport.write(self._request)

    def on_body(self, body: bytes) -> None:
        self._text += body

    def on_message_complete(self) -> None:
        self._ended = True

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter_ns()
        self._parser.feed_data(data)
        end = 0
        for found in _LEFT.finditer(self._text):
            end = found.end()
            if not self._count:
                self._heard.first.append(now / 1e9 - self._began)
            self._count += 1
            self._heard.late.append((now - int(found[1])) / 1e9)
        self._text = self._text[end:]
        if self._ended:
            self._heard.lost += self._count != self._events
            self._wanted -= 1
            if self._wanted > 0:
                self._ask()
            else:
                self._transport.close()

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


async def rates(addresses: Mapping[str, str]) -> Rates:
    """Measure whole streams a second at each address, in turns; the first round warms up."""
    found: Rates = {name: [] for name in addresses}
    for number in range(ROUNDS + 1):
        for name, address in addresses.items():
            calls, began = CALLS if name != "litellm" else CALLS // 8, time.perf_counter()
            heard = await listen(address, AT_ONCE, calls, EVENTS)
            assert not heard.lost, name  # noqa: S101 - a bench that loses measures nothing
            if number:
                found[name].append(AT_ONCE * calls / (time.perf_counter() - began))
    return found


def medians(found: Rates) -> str:
    """Return the median of each, in one line."""
    return ", ".join(f"{name} {statistics.median(one):.0f}" for name, one in found.items())


def median_ratio(found: Rates, one: str, other: str) -> float:
    """Return the median of the ratios of each round."""
    return statistics.median(map(float.__truediv__, found[one], found[other]))
