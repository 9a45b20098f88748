"""The command line."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import uvicorn
import uvloop
from fastapi import FastAPI

from cutover.errors import CutoverError
from harness import forget, root
from harness.config import ConfigRefused, ServerTable, load
from harness.gateway import serving_gateway
from harness.heads import BoundedHeads
from harness.live import Live
from harness.logs import start_logging
from harness.replay import replay
from harness.services import open_services
from harness.setup.apps import apps
from harness.setup.doctor import diagnose, page
from harness.setup.init import NONE, WITHOUT, Asking, look, refuse_existing, write
from loadtests.simulator import Simulator

LEAVING_SECONDS = 5.0
"""What tasks and threads may take to end once the server has closed."""

cli = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@cli.callback()
def commands() -> None:
    """Replace the pipeline behind a streaming chat without its users noticing."""


@cli.command()
def serve(
    config: Annotated[
        Path | None, typer.Option(help="cutover.toml; without it, the five flows")
    ] = None,
    *,
    simulate: Annotated[bool, typer.Option(help="answer with a simulated model")] = False,
    crash: Annotated[int, typer.Option(help="let graph crash behind its n-th event")] = 0,
) -> None:
    """Serve the flows."""
    settings = load(config)
    start_logging(settings)
    for one in (signal.SIGINT, signal.SIGTERM):
        # The server drains when it gets one, and raises it once more: the command ends by itself.
        signal.signal(one, lambda *_: None)
    # What stacks in this process do past the tape is seen on Python's own sockets alone.
    within = any(not flow.paths for flow in settings.flows.values())
    run = asyncio.run if within else uvloop.run
    run(_serve(Live(settings, config), simulate=simulate, crash=crash))


cli.command()(replay)


async def _serve(live: Live, *, simulate: bool, crash: int) -> None:
    async with AsyncExitStack() as opened:
        if simulate:
            model = await opened.enter_async_context(Simulator(chunk_ms=20))
            os.environ["OPENAI_BASE_URL"] = model.base_url
            os.environ.setdefault("OPENAI_API_KEY", "none")
        captures = await opened.enter_async_context(root.capturing(live.settings))
        world = await opened.enter_async_context(root.opened(live.settings))
        services = await opened.enter_async_context(
            open_services(live.settings, await opened.enter_async_context(apps(live.settings)))
        )
        await opened.enter_async_context(serving_gateway(live.settings, services.runs))
        told = await opened.enter_async_context(root.tracing(live.settings))
        app = root.application(
            live, world, services, captures=captures, observers=told, crash_after=crash
        )
        for following in _following(live):
            opened.callback(asyncio.create_task(following).cancel)
        gc.collect()
        gc.freeze()  # what stays is not looked through again: that stops streams for 0.2 s
        await server(app, live.settings.server).serve()
    # A stack may swallow its cancellation, or block a thread: the process ends all the same.
    leaving = threading.Timer(LEAVING_SECONDS, os._exit, (0,))
    leaving.daemon = True
    leaving.start()


def _following(live: Live) -> list[Coroutine[Any, Any, None]]:
    """Return what keeps the settings in force up to date; raises `ConfigRefused`."""
    table = live.settings.flags
    if table is None:
        return [live.watch()]
    try:
        flags = importlib.import_module("harness.flags").Flags(table.provider)
    except ImportError as error:
        problem = f"flags.provider: install the packages of cutover[flags] ({error})"
        raise ConfigRefused(None, [problem]) from error
    return [live.watch(), flags.follow(live)]


@cli.command("init")
def init_command(
    old: Annotated[str, typer.Argument(help="the service that serves: its URL, or module:app")],
    new: Annotated[str, typer.Argument(help="the service that is to: its URL, or module:app")],
    path: Annotated[str, typer.Option(help="as /chat, /threads/{thread=42}/runs")] = "",
    body: Annotated[str, typer.Option(help="a file, or the body itself")] = "",
    method: Annotated[str, typer.Option(help="GET, POST, PUT or PATCH")] = "POST",
    header: Annotated[list[str] | None, typer.Option(help="as 'authorization: Bearer ...'")] = None,
    conversation: Annotated[
        str, typer.Option(help="where its id stands, as body.thread; - for nowhere")
    ] = "",
    user: Annotated[str, typer.Option(help="where the user's id stands, as body.user.id")] = "",
    out: Annotated[Path, typer.Option(help="the file to write")] = Path("cutover.toml"),
) -> None:
    """Ask two services once each, and write a configuration that puts a router before them."""
    asking = Asking(path, method.upper(), body, header or [], conversation, user)
    refuse_existing(out)
    found = asyncio.run(look(old, new, asking, typer.echo, _choose))
    typer.echo("\n".join(["", *write(found, out, typer.echo)]))


@cli.command("doctor")
def doctor_command(
    config: Annotated[Path, typer.Option(help="cutover.toml")] = Path("cutover.toml"),
    header: Annotated[list[str] | None, typer.Option(help="as 'authorization: Bearer ...'")] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Check a set-up and say what works in it; each service is asked once."""
    parted = (line.partition(":") for line in header or ())
    found = asyncio.run(diagnose(config, {name: value.strip() for name, _, value in parted}))
    typer.echo(msgspec.json.encode(found).decode() if json else page(found))
    raise typer.Exit(0 if found.healthy else 1)


def _choose(found: str) -> str:
    """Return where the conversation's id stands: asked at a terminal, elsewhere what was found."""
    if not sys.stdin.isatty():
        return found
    typer.echo(f"Where in the request is the conversation's id? {WITHOUT[0].upper()}{WITHOUT[1:]}.")
    given: str = typer.prompt("body., query., header. or path., - for nowhere", found or NONE)
    return "" if given == NONE else given


class Server(uvicorn.Server):
    """uvicorn, which waits for streams while it still answers `/readyz`, so that none is cut."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._drain = drain

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, and then close what is left."""
        await self._drain()
        await super().shutdown(sockets)


def server(app: FastAPI, table: ServerTable) -> uvicorn.Server:
    """Return the HTTP server of an application."""
    return Server(
        uvicorn.Config(
            app,
            host=table.host,
            port=table.port,
            http=BoundedHeads,
            ws="none",
            log_config=None,
            log_level="warning",
            timeout_graceful_shutdown=5,
        ),
        partial(app.state.drain, table.drain_seconds),
    )


cli.command("forget", epilog=forget.STATUS)(forget.command)


def main() -> None:
    """Run the command line; what the user can mend is said in one line."""
    try:
        cli()
    except CutoverError as error:
        typer.echo(f"cutover: {error}", err=True)
        raise SystemExit(2) from error
