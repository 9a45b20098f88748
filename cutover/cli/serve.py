"""`cutover serve`: the router, until it is told to stop; one process, or several on one address."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contract.errors import CutoverError
from cutover.application import application, in_force
from cutover.flows import DEFAULT_CONFIG, SPECS, flows_of
from cutover.pseudonyms import unsearchable
from cutover.server.lasting import run
from cutover.server.logging import FORMAT, Discretion
from cutover.server.memory import give_back
from cutover.server.serve import LAST_WORDS, address, listen, server, settle
from cutover.server.shutdown import Leaving
from cutover.server.workers import Line, Supervisor, places
from cutover.wiring.addresses import Crew, shared
from router.config import SettingsWatcher, is_offered
from router.gateway import Neighbours
from router.telemetry.metrics.instruments import FOLDER

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine, Iterator

    from cutover.server.serve import Server
    from router.config import Settings

log = logging.getLogger(__name__)

CLOSING_SECONDS = 10.0
"""What a worker may need beyond its streams: for captures, stores and connections."""


def serve(
    config: Annotated[Path, typer.Option(help="The configuration.")] = DEFAULT_CONFIG,
    host: Annotated[str | None, typer.Option(help="Overrides the file.")] = None,
    port: Annotated[int | None, typer.Option(help="Overrides the file; 0 is any.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes; overrides the file.")
    ] = None,
) -> None:
    """Serve the flows; a change of cutover.toml is in force within a second."""
    handler = logging.StreamHandler()
    logging.basicConfig(level=logging.INFO, format=FORMAT, handlers=[handler])
    # One line a model call would tell nothing the records do not.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        watched = _watched(config)
        first = in_force(watched)()
        discretion = Discretion(handler, os.environ)
        discretion(first)
        if watched is not None:
            watched.on_change(discretion)
        if first.captures.percent and (said := unsearchable(first.captures, os.environ)):
            log.warning("captures: %s", said)
        post = _Post(
            watched,
            first,
            host or first.server.host,
            first.server.port if port is None else port,
            workers or first.server.workers,
        )
        status = _alone(post) if post.workers == 1 else _several(post)
    except CutoverError as error:
        _refuse(error)
        raise typer.Exit(2) from error
    raise typer.Exit(status)


@dataclass(frozen=True, slots=True)
class _Post:
    """What is to be served, and where."""

    watched: SettingsWatcher | None
    first: Settings
    host: str
    port: int
    workers: int
    neighbours: Path | None = None


def _alone(post: _Post) -> int:
    with listen(post.host, post.port) as listening:
        _run(post, listening, lambda _: _announce(post, listening))
    return 0


def _several(post: _Post) -> int:
    # Refused before anything is made.
    shared(post.first.stores, os.environ, post.workers)
    settle()
    stands = places(post.host, post.port, post.workers)
    watched = post.watched
    with _metrics_together(post.first), TemporaryDirectory(prefix="cutover-workers-") as folder:
        return Supervisor(
            stands,
            partial(_work, replace(post, neighbours=Path(folder))),
            stop_seconds=2 * post.first.server.drain_seconds + LAST_WORDS + CLOSING_SECONDS,
            announce=lambda: _announce(post, stands[0].open()),
            # Who is started again begins with the last good configuration, as the others have it.
            tick=(lambda: None) if watched is None else watched.poll_once,
        ).run()


@contextmanager
def _metrics_together(settings: Settings) -> Iterator[None]:
    """Give the workers a folder where their metrics meet, unless there is one."""
    if not settings.metrics.enabled or FOLDER in os.environ:
        yield
        return
    with TemporaryDirectory(prefix="cutover-metrics-") as folder:
        os.environ[FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[FOLDER]


def _work(post: _Post, listening: socket.socket, line: Line) -> int:
    """Be one of several workers; returns the status of its process."""

    def ready(serving: Server) -> None:
        stop = partial(serving.handle_exit, signal.SIGTERM, None)
        line.when_closed(asyncio.get_running_loop(), stop)
        line.say_ready()

    try:
        _run(post, listening, ready)
    except CutoverError as error:
        _refuse(error)
        return 2
    return 0


def _run(post: _Post, listening: socket.socket, ready: Callable[[Server], None]) -> None:
    with Leaving() as leaving:
        run(_closed(_serve(post, listening, ready), leaving))


async def _closed(serving: Coroutine[Any, Any, None], leaving: Leaving) -> None:
    try:
        await serving
    finally:
        leaving.begin()


async def _serve(post: _Post, listening: socket.socket, ready: Callable[[Server], None]) -> None:
    watched, first = post.watched, in_force(post.watched)()
    give_back()
    async with AsyncExitStack() as stack:
        if watched is not None:
            await stack.enter_async_context(watched.watching())
        sockets, neighbours = [listening], None
        if post.neighbours is not None and first.gateway.enabled:
            neighbours = stack.enter_context(Neighbours.joined(post.neighbours))
            sockets.append(neighbours.listening)
        built = await stack.enter_async_context(
            application(watched, os.environ, host=post.host, crew=Crew(post.workers, neighbours))
        )
        serving = server(built.app, built.house.router, first.server.drain_seconds)
        ready(serving)
        settle()
        await serving.serve(sockets=sockets)


def _announce(post: _Post, listening: socket.socket) -> None:
    typer.echo(f"cutover listening on {address(listening)}")
    if post.watched is None:
        typer.echo(f"  no {DEFAULT_CONFIG} here: defaults are in force")
    if post.workers > 1:
        typer.echo(f"  {post.workers} workers")
    flows = flows_of(post.first)
    for name, flow in post.first.flows.items():
        if is_offered(name, flow, post.first.stacks):
            typer.echo(f"  {flows[name].path}  {name}: {flow.stage}")


def _refuse(error: CutoverError) -> None:
    typer.echo(f"cutover serve: {error}", err=True)


def _watched(config: Path) -> SettingsWatcher | None:
    """Read the file; without one at the default place, defaults are in force."""
    if config == DEFAULT_CONFIG and not config.exists():
        return None
    return SettingsWatcher(config, SPECS)
