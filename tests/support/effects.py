"""Two services with effects of their own, behind a router with the effect API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from contract.records import RunRecord
from tests.support.deployment import Deployment, Setup, deployed
from tests.support.scripted_service import HELLO, WHOLE, Asked, Service, Stream
from tests.support.scripted_service import serving as service_at

KEY = "key-of-the-gateway"
INSERT = {"effect": "orders.insert", "arguments": {"item": "tea", "count": 2}}
TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"
Reply = tuple[int, Any]


@dataclass
class Stack:
    """A service with effects of its own: `works` does them, `performed` are those it really did.

    One that is `traced` passes on nothing but the trace of its request, in a span of its own.
    """

    works: Callable[[Stack], Awaitable[None]]
    fails: bool = False
    gateway: str = ""
    key: str = KEY
    traced: bool = False
    asked: Asked | None = None
    performed: list[str] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    async def __call__(self, asked: Asked, stream: Stream) -> None:
        """Answer one request of the router."""
        self.asked = asked
        await self.works(self)
        if self.fails:
            await stream.raw(b"HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n")
            return
        await stream.head()
        await stream.send(WHOLE)
        await stream.end()

    @property
    def span(self) -> str:
        """The trace of the last request, with a parent of one's own."""
        assert self.asked is not None
        version, trace, _, flags = self.asked.header("traceparent")[0].split("-")
        return f"{version}-{trace}-{'c' * 16}-{flags}"

    async def post(self, path: str, body: object, *, named: bool = False) -> Reply:
        """Send something to the effect API, as the exchange of the last request."""
        assert self.asked is not None
        headers = {"authorization": f"Bearer {self.key}"}
        exchange = self.asked.header("x-cutover-exchange")[0]
        below = f"/exchanges/{exchange}" if named else ""
        if self.traced:
            headers["traceparent"] = self.span
        elif not named:
            headers["x-cutover-exchange"] = exchange
            headers["x-cutover-role"] = self.asked.header("x-cutover-role")[0]
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.gateway}{below}{path}", data=data, headers=headers) as response,
        ):
            text = await response.read()
            return response.status, json.loads(text) if text else None

    async def begin(self, **more: object) -> Reply:
        """Ask whether to perform the effect."""
        reply = await self.post("/effects", {**INSERT, **more})
        self.replies.append(reply)
        return reply

    async def run(self, report: object = None, **more: object) -> Reply:
        """Do as a client library does: ask, perform where told to, report."""
        status, told = await self.begin(**more)
        if status == 200 and told["do"] == "perform":
            self.performed.append(str(more.get("effect", INSERT["effect"])))
            reported = {"result": {"id": 7}} if report is None else report
            return await self.post(f"/effects/{told['lease']}", reported)
        return status, told


@asynccontextmanager
async def house(
    folder: Path,
    legacy: Stack,
    graph: Stack,
    *,
    shadow: float = 0,
    percent: float = 0,
    gateway: str = "effects = true",
    more: str = "",
    pseudonym_key_env: str = "",
) -> AsyncIterator[Deployment]:
    """Deploy a router with the effect API before two services that use it."""
    async with service_at(legacy) as one, service_at(graph) as other:
        setup = Setup(
            more=_stacks(one, other, gateway) + more,
            shadow=shadow,
            percent=percent,
            pseudonym_key_env=pseudonym_key_env,
            environ={"GATEWAY_KEY": KEY, pseudonym_key_env: "a key"},
        )
        async with deployed(folder, setup) as place:
            text = place.watched.path.read_text("utf-8")
            place.edit(text.replace("[flows.chat]", "[flows.chat]\nfallback_to_graph = true", 1))
            legacy.gateway = graph.gateway = place.gateway
            yield place


def _stacks(legacy: Service, graph: Service, gateway: str) -> str:
    return f"""
[metrics]
enabled = true
[gateway]
enabled = true
key_env = "GATEWAY_KEY"
{gateway}
[stacks.legacy]
url = "{legacy.url}/chat/sse"
[stacks.graph]
url = "{graph.url}/chat/sse"
shadow_safe = true
"""


async def ask(place: Deployment) -> None:
    """Be a client of the router, traced."""
    answer = await place.ask(HELLO, headers={"traceparent": TRACEPARENT})
    assert answer.body == WHOLE
    await place.settled()


async def served(place: Deployment) -> RunRecord:
    """Return the record with the tape."""
    [run] = [one for one in await place.lines() if one.tape is not None]
    return run
