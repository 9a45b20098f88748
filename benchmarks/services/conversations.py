"""Clients of two assistants: each conversation orders, and every order is another one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import Final, Literal

import aiohttp
import msgspec

from benchmarks.services.processes import Deployment
from contract.wire.sse import SseDecoder

TURNS: Final = 2
FIRST_GRAMS: Final = 1_001
EXCHANGE: Final = "x-cutover-exchange"
_SILENT_S: Final = 60.0
"""A stream that sends nothing for so long has stopped without a word."""
_RETRY_S: Final = 0.05
_ORDERED: Final = re.compile(r"order (\d+): (\d+) g of")

Ending = Literal["complete", "error", "refused", "cut", "silent"]
"""`error`: by an event that says so; `cut`: the connection broke; `silent`: none of it."""


class _Data(msgspec.Struct):
    text: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client got of one request: it ordered so many `grams`, which name the order.

    Whether the router was killed, or asked to stop, meanwhile. `ended` by the loop's clock.
    """

    grams: int
    exchange: str
    ending: Ending
    text: str
    takeovers: int
    router_killed: bool
    router_stopped: bool
    ended: float

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers under which the shop has the order, as the text says."""
        found = _ORDERED.findall(self.text)
        return tuple(int(number) for number, grams in found if int(grams) == self.grams)


@dataclass
class Conversations:
    """Conversations with the deployment, several at a time; each asks a second time."""

    deployed: Deployment
    session: aiohttp.ClientSession
    asked: list[Asked] = field(default_factory=list)
    open: set[int] = field(default_factory=set)
    """The orders whose streams are open."""
    over: bool = False
    """No conversation is to be begun any more."""
    _events: int = 0
    _waiting: list[tuple[int, asyncio.Event]] = field(default_factory=list)

    async def hold(self, at_once: int) -> None:
        """Hold conversations, so many at once, until it is over."""
        numbers = count()
        async with asyncio.TaskGroup() as clients:
            for _ in range(at_once):
                clients.create_task(self._client(numbers))

    async def events(self, count: int) -> None:
        """Wait until clients have received so many more events, of all streams together."""
        reached = asyncio.Event()
        self._waiting.append((self._events + count, reached))
        await reached.wait()

    async def ended(self) -> None:
        """Wait until the streams that are open now have ended."""
        orders = set(self.open)
        while orders & self.open:
            await self.events(1)

    async def _client(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            if self.over:
                return
            for turn in range(TURNS):
                grams = FIRST_GRAMS + TURNS * number + turn
                self.open.add(grams)
                try:
                    self.asked.append(await self._ask(f"c{number}", grams))
                finally:
                    self.open.discard(grams)
                    self._count()

    async def _ask(self, conversation: str, grams: int) -> Asked:
        router = self.deployed.router
        body = {
            "conversation_id": conversation,
            "message": f"Please order {grams} g of flour",
            "picture": None,
        }
        while True:
            kills, stops, exchange, text, last = router.kills, router.stops, "", "", ""
            ending: Ending = "silent"
            takeovers = 0
            try:
                async with self.session.post(f"{self.deployed.url}/clean", json=body) as response:
                    exchange = response.headers.get(EXCHANGE, "")
                    if response.status != HTTPStatus.OK:
                        ending = "refused"
                    decoder = SseDecoder()
                    async for piece in response.content.iter_any():
                        takeovers += piece.count(b": served-by ")
                        for event in decoder.feed(piece):
                            last = event.event or ""
                            text += msgspec.json.decode(event.data, type=_Data).text
                            self._count()
                    ending = _ENDS.get(last, ending)
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(_RETRY_S)  # nothing listens: nothing was sent
                continue
            except (aiohttp.ClientError, ConnectionError):
                ending = "cut"
            except TimeoutError:
                ending = "silent"
            killed = kills % 2 == 1 or router.kills > kills
            stopped = stops % 2 == 1 or router.stops > stops
            ended = asyncio.get_running_loop().time()
            return Asked(grams, exchange, ending, text, takeovers, killed, stopped, ended)

    def _count(self) -> None:
        self._events += 1
        for waiting in [one for one in self._waiting if one[0] <= self._events]:
            self._waiting.remove(waiting)
            waiting[1].set()


_ENDS: Final[dict[str, Ending]] = {"done": "complete", "error": "error"}


def client(at_once: int) -> aiohttp.ClientSession:
    """Return a client, each of whose requests has a connection of its own."""
    connector = aiohttp.TCPConnector(limit=at_once, force_close=True)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=_SILENT_S)
    return aiohttp.ClientSession(connector=connector, timeout=timeout)
