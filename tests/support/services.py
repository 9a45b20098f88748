"""Services in processes of their own, as near as a test can have them: behind sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec
import uvicorn

from cutover import Event, Request, StackFailed
from cutover.tape import current_run
from router.gateway import Gateway, GatewaySettings, open_connections
from router.gateway.runs import OpenRuns, headers
from tests.support.ask import ASK


class _Server(uvicorn.Server):
    """uvicorn, which leaves the test's signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


@asynccontextmanager
async def serving(app: Any, *, apart: bool = True) -> AsyncIterator[str]:
    """Serve an application on loopback, `apart` in a thread with a loop of its own; yield its URL.

    A service that blocks its loop must not block that of the gateway.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # asyncio sets it for sockets that it binds itself alone
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = _Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
        sockets = [listening]
        run = asyncio.to_thread(server.run, sockets) if apart else server.serve(sockets)
        task = asyncio.create_task(run)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


@dataclass(frozen=True, slots=True)
class EffectsServer:
    """A gateway without providers: what services ask of it are effects."""

    runs: OpenRuns
    url: str

    def stack(self, url: str) -> Any:
        """Return a stack that is a service at `url`, which streams the events of `ASK`."""

        async def behind(request: Request[Any, Any]) -> AsyncIterator[Event]:
            run = current_run()
            assert run is not None
            said = headers(self.runs.open(run), self.url)
            body = msgspec.to_builtins(request.body)
            try:
                async with (
                    httpx.AsyncClient(timeout=30, verify=False) as client,  # noqa: S501 - loopback
                    client.stream("POST", url, json=body, headers=said) as answer,
                ):
                    if answer.status_code != 200:
                        code = f"status_{answer.status_code}"
                        raise StackFailed(code)
                    async for line in answer.aiter_lines():
                        if line.startswith("data: "):
                            yield msgspec.json.decode(line.removeprefix("data: "), type=ASK.events)
            except httpx.TransportError as error:
                raise StackFailed("service_broke") from error

        return behind


@asynccontextmanager
async def effects_server() -> AsyncIterator[EffectsServer]:
    """Serve a gateway without providers."""
    runs = OpenRuns()
    async with open_connections() as session:
        gateway = Gateway(GatewaySettings([]), runs, session)
        async with serving(gateway, apart=False) as url:
            yield EffectsServer(runs, url)
