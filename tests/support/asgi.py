"""An ASGI application on a free port of loopback, inside the test's own loop."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    """Serve the application; gives its base URL."""
    config = uvicorn.Config(app, lifespan="off", log_config=None, ws="none")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    # asyncio switches Nagle off only where the protocol is named; else every answer waits 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    # `serve` would take the signals and look only ten times a second whether to stop.
    await server.startup([listener])
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        # `shutdown` would sleep a tenth of a second.
        for one in server.servers:
            one.close()
        for connection in list(server.server_state.connections):
            connection.shutdown()
