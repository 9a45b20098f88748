"""A router whose exchanges stay open, for benches of what passes through its gateway."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import httpx2
from starlette.types import ASGIApp, Receive, Scope, Send

from contract.flows import SPECS
from cutover.application import application
from cutover.server.serve import GatewayServer, server_configuration
from cutover.server.sockets import address, listen
from router.config.watcher import SettingsWatcher

_KEY: Final = "key-of-the-bench"
_EXCHANGE: Final = "x-cutover-exchange"
_CONFIGURATION: Final = """
[flows.chat]
enable_langgraph = true

[stacks.legacy]
url = "{service}/chat/sse"

[stacks.graph]
url = "{service}/chat/sse"

[captures]
path = "{folder}/captures"

[stores]
conversations = "sqlite:///{folder}/store.sqlite"
memory = "memory://"
pauses = "memory://"
checkpoints = "memory://"

[gateway]
enabled = true
key_env = "GATEWAY_KEY"
"""


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[str]:
    """Serve an application as the router serves its own; gives the address."""
    listening = listen("127.0.0.1", 0)
    url = address(listening)
    async with GatewayServer(server_configuration(app)).serving([listening]):
        yield url


class Service:
    """A stack that keeps each exchange open until it is told to answer."""

    def __init__(self) -> None:
        self.exchanges: asyncio.Queue[str] = asyncio.Queue()
        self.done = asyncio.Event()

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        """Answer one request of the router."""
        self.exchanges.put_nowait(dict(scope["headers"])[_EXCHANGE.encode()].decode())
        await self.done.wait()
        head = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b'data: {"step":"END"}\n\n'})


Exchange = Callable[[], AbstractAsyncContextManager[Mapping[str, str]]]
"""Opens an exchange for a block; gives the headers of its calls."""


@asynccontextmanager
async def gateway(more: str) -> AsyncIterator[tuple[str, Exchange]]:
    """Serve a router; gives the address of its gateway, and what opens an exchange.

    `more` are further keys of `[gateway]`, and sections.
    """
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        service = Service()
        url = await enter(serving(service))
        path = Path(folder, "cutover.toml")
        text = _CONFIGURATION.format(service=url, folder=folder) + more
        await asyncio.to_thread(path.write_text, text, "utf-8")
        built = await enter(application(SettingsWatcher(path, SPECS), {"GATEWAY_KEY": _KEY}))
        users = await enter(serving(built.app))
        own = await enter(serving(built.gateway or built.app))
        http = await enter(httpx2.AsyncClient(trust_env=False, timeout=None))
        for connection in built.services.live.servers:
            while connection.session is None:
                await connection.changed()

        @asynccontextmanager
        async def opened() -> AsyncIterator[Mapping[str, str]]:
            service.done.clear()
            body = {"message_id": secrets.token_hex(8), "content": "Hello"}
            asking = asyncio.create_task(http.post(f"{users}/chat/sse", json=body))
            exchange = await service.exchanges.get()
            try:
                yield {_EXCHANGE: exchange, "authorization": f"Bearer {_KEY}"}
            finally:
                service.done.set()
                await asking

        yield own, opened
