"""The gateway beside the router: its providers, its connections, its own listener."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

from harness.config import ConfigRefused, Settings
from harness.server.listener import listener
from router.gateway import Gateway, GatewaySettings, Provider, open_connections
from router.gateway.runs import OpenRuns

_OPENAI = "https://api.openai.com/v1"


@asynccontextmanager
async def serving_gateway(
    settings: Settings, runs: OpenRuns, *, replays: bool = False
) -> AsyncIterator[Gateway | None]:
    """Serve the gateway until the block ends, None where it is off; raises `ConfigRefused`."""
    if (table := settings.gateway) is None:
        yield None
        return
    providers = [
        Provider(
            name,
            one.base_url or os.environ.get("OPENAI_BASE_URL", _OPENAI),
            one.key,
            one.silence_seconds,
        )
        for name, one in settings.providers.items()
    ]
    asked = GatewaySettings(
        providers, table.key, frozenset(table.origins), table.body_bytes, replays
    )
    with _bound(table.host, table.port) as opened:
        async with open_connections() as session:
            gateway = Gateway(asked, runs, session)
            config = listener(
                gateway,
                lifespan="off",
                server_header=False,
                # As providers do: 5 s breaks calls that are about to use a connection.
                timeout_keep_alive=75,
            )
            server = _Beside(config)
            serving = asyncio.create_task(server.serve([opened]))
            try:
                yield gateway
            finally:
                server.should_exit = True
                await serving


class _Beside(uvicorn.Server):
    """A second server of the process: signals are the first's, which is ended before this one."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server((host, port), family=family, backlog=2_048)
    except OSError as error:
        why = f"gateway: cannot listen on {host}:{port}: {error.strerror}"
        raise ConfigRefused(None, [why]) from error
    # asyncio sets it for sockets that it binds itself alone: answers would wait for 40 ms
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened
