"""`cutover serve`: the router, until a signal stops it; one process, or several on one address."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from contract.errors import CutoverError
from contract.flows import SPECS
from cutover.application import in_force
from cutover.flows import DEFAULT_CONFIG, flows_of
from cutover.server.logging import FORMAT, LogRedaction
from cutover.server.serve import ServePlan, run_server
from cutover.server.sockets import address
from cutover.wiring.composition import unsearchable
from router.config.capabilities import is_offered
from router.config.schema import Settings
from router.config.watcher import SettingsWatcher

log = logging.getLogger(__name__)


def serve(
    config: Annotated[Path, typer.Option(help="The configuration.")] = DEFAULT_CONFIG,
    host: Annotated[str | None, typer.Option(help="Overrides the file.")] = None,
    port: Annotated[int | None, typer.Option(help="Overrides the file; 0 is any.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes; overrides the file.")
    ] = None,
    debug_exchange: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Log each step of the exchanges with this id, or with this id of a message or "
            "session; can be repeated.",
        ),
    ] = None,
) -> None:
    """Serve the flows; a change of cutover.toml is in force within a second."""
    handler = logging.StreamHandler()
    logging.basicConfig(level=logging.INFO, format=FORMAT, handlers=[handler])
    # One line a model call would add nothing to the records.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        no_file = config == DEFAULT_CONFIG and not config.exists()
        watched = None if no_file else SettingsWatcher(config, SPECS)
        settings = in_force(watched)()
        redaction = LogRedaction(handler, os.environ)
        redaction(settings)
        if watched is not None:
            watched.on_change(redaction)
        if settings.captures.percent and (why := unsearchable(settings.captures, os.environ)):
            log.warning("captures: %s", why)
        workers = workers or settings.server.workers

        def announce(listening: Sequence[socket.socket]) -> None:
            _announce(settings, listening, no_file=no_file, workers=workers)

        status = run_server(
            ServePlan(
                watched=watched,
                settings=settings,
                host=host or settings.server.host,
                port=settings.server.port if port is None else port,
                workers=workers,
                announce=announce,
                report=_report,
                debugged=frozenset(debug_exchange or ()),
            )
        )
    except CutoverError as error:
        _report(error)
        raise typer.Exit(2) from error
    raise typer.Exit(status)


def _announce(
    settings: Settings, listening: Sequence[socket.socket], *, no_file: bool, workers: int
) -> None:
    users, *gateway = listening
    typer.echo(f"cutover listening on {address(users)}")
    for one in gateway:
        typer.echo(f"  gateway on {address(one)}")
    if no_file:
        typer.echo(f"  no {DEFAULT_CONFIG} here: defaults are in force")
    if workers > 1:
        typer.echo(f"  {workers} workers")
    flows = flows_of(settings)
    for name, flow in settings.flows.items():
        if is_offered(name, settings):
            typer.echo(f"  {flows[name].path}  {name}: configured {flow.stage}")


def _report(error: CutoverError) -> None:
    typer.echo(f"cutover serve: {error}", err=True)
