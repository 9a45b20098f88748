"""A client of one flow's endpoint behind an ASGI server, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.types import Message

from router.http.connection import ABORT
from router.http.endpoints import FlowEndpoint
from rules.chat import lock_key
from tests.support.router_world import House, memory


class AsgiClient:
    """Sends one request, and takes so many messages, each after `pause` seconds, then none.

    `ended` is when the last byte went out, `held` whether the message's lock was held then,
    `aborted` how often the server was asked to drop the connection.
    """

    def __init__(
        self, made: House, takes: float = float("inf"), pause: float = 0.0, **body: object
    ) -> None:
        self.made = made
        self.left = takes
        self.pause = pause
        self.body: dict[str, Any] = msgspec.to_builtins(made.case.body) | body
        self.status = 0
        self.parts: list[bytes] = []
        self.ended = 0.0
        self.held = False
        self.aborted = 0
        self.extensions: dict[str, Any] = {ABORT: {"call": self._abort}}
        self._read = False
        self._gone = asyncio.Event()

    async def ask(self) -> None:
        """Send the request and take the answer."""
        scope = {"type": "http", "headers": [], "query_string": b"", "extensions": self.extensions}
        endpoint = FlowEndpoint(self.made.router, memory(self.made), self.made.spec)
        await endpoint(scope, self._receive, self._send)

    def _abort(self) -> None:
        self.aborted += 1
        self._gone.set()

    async def _receive(self) -> dict[str, Any]:
        if self._read:
            await self._gone.wait()
            return {"type": "http.disconnect"}
        self._read = True
        content = {name: value for name, value in self.body.items() if value is not None}
        return {"type": "http.request", "body": msgspec.json.encode(content)}

    async def _send(self, message: Message) -> None:
        if self.left <= 0:
            await asyncio.get_running_loop().create_future()
        self.left -= 1
        await asyncio.sleep(self.pause)
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        self.parts.append(message["body"])
        if not message.get("more_body"):
            key = lock_key(self.body["message_id"])
            self.ended = asyncio.get_running_loop().time()
            self.held = not await self.made.world.locks.acquire("test", key, 1.0)
