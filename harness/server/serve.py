"""`cutover serve`: the router as a process, from its configuration to its end."""

import asyncio
import gc
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import typer
import uvicorn
import uvloop

from effects.pauses import Pauses
from harness import root
from harness.config import ConfigRefused, load
from harness.live import LiveSettings
from harness.server.gateway import serving_gateway
from harness.server.listener import listener, serving_beside
from harness.server.logs import start_logging
from harness.services import open_services
from loadtests.simulator import Simulator

LEAVING_SECONDS = 5.0
"""What tasks and threads may take to end once the server has closed."""


def serve(config: Path | None, *, simulate: bool, crash: int) -> None:
    """Serve the flows of a configuration file until a signal comes; raises `ConfigRefused`."""
    settings = load(config)
    start_logging(settings)
    stopped: list[int] = []  # while it starts
    for one in (signal.SIGINT, signal.SIGTERM):
        # The server drains when it gets one, and raises it once more: the command ends by itself.
        signal.signal(one, lambda number, _: stopped.append(number))
    # What stacks in this process do past the tape is seen on Python's own sockets alone.
    run = asyncio.run if settings.built_in else uvloop.run
    run(_serve(LiveSettings(settings, config), stopped, simulate=simulate, crash=crash))


async def _serve(live: LiveSettings, stopped: list[int], *, simulate: bool, crash: int) -> None:
    settings = live.settings
    async with AsyncExitStack() as opened:
        enter = opened.enter_async_context
        if simulate:
            os.environ["OPENAI_BASE_URL"] = (await enter(Simulator(chunk_ms=20))).base_url
            os.environ.setdefault("OPENAI_API_KEY", "none")
        captures = await enter(root.capturing(settings))
        world = await enter(root.opened(settings))
        services = await enter(open_services(settings))
        await enter(serving_gateway(settings, services.runs))
        observers = [*await enter(root.tracing(settings))]
        app = root.application(
            live, world, services, captures=captures, observers=observers, crash_after=crash
        )
        if (at := settings.console) is not None:
            from harness.console.app import Console  # it reads reports, and so needs pandas

            console = Console(app.state.process, Pauses(world.database, world.clock), settings, at)
            observers.append(console.board.observe)
            await enter(serving_beside(console, "console", at.host, at.port))
            typer.echo(f"console at {_url(at.host, at.port)}/console")
        for following in _following(live):
            opened.callback(asyncio.create_task(following).cancel)
        # Looking for cycles stops every stream, for 0.2 s where it looks through all that has been
        # imported. Runs of a graph leave cycles: looked through seldom, they fill the memory.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 5, 5)
        table = settings.server
        config = listener(app, host=table.host, port=table.port)
        server = Server(config, partial(app.state.drain, table.drain_seconds))
        server.should_exit = bool(stopped)
        await server.serve()
    # A stack may swallow its cancellation, or block a thread: the process ends all the same.
    leaving = threading.Timer(LEAVING_SECONDS, os._exit, (0,))
    leaving.daemon = True
    leaving.start()


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _following(live: LiveSettings) -> Iterator[Coroutine[Any, Any, None]]:
    """Yield what keeps the settings in force up to date; raises `ConfigRefused`."""
    yield live.watch()
    if (table := live.settings.flags) is not None:
        try:
            from harness.server.flags import Flags
        except ImportError as error:
            problem = f"flags.provider: install the packages of cutover[flags] ({error})"
            raise ConfigRefused(None, [problem]) from error
        yield Flags(table.provider).follow(live)


class Server(uvicorn.Server):
    """uvicorn, which waits for streams while it still answers `/readyz`, so that none is cut."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._drain = drain

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and print where."""
        await super().startup(sockets)
        for one in self.servers:
            host, port = one.sockets[0].getsockname()[:2]
            at = _url(host, port)
            typer.echo(f"serving at {at}\nnext: ask a flow there, and curl {at}/cutover/status")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, and then close what is left."""
        await self._drain()
        await super().shutdown(sockets)
