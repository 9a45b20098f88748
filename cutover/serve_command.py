"""`cutover serve`: the router, until it is told to stop."""

from __future__ import annotations

import logging
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from contract.errors import CutoverError
from cutover.application import DEFAULT_CONFIG, application, in_force
from cutover.flows import SPECS
from cutover.logs import FORMAT, discreet
from cutover.serve import address, listen, server, settle
from router.watching import Watched


def serve(
    config: Annotated[Path, typer.Option(help="The configuration.")] = DEFAULT_CONFIG,
    host: Annotated[str | None, typer.Option(help="Overrides the file.")] = None,
    port: Annotated[int | None, typer.Option(help="Overrides the file; 0 is any.")] = None,
) -> None:
    """Serve the flows; a change of cutover.toml is in force within a second."""
    handler = logging.StreamHandler()
    logging.basicConfig(level=logging.INFO, format=FORMAT, handlers=[handler])
    # One line a model call would tell nothing the records do not.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        uvloop.run(_serve(config, host, port, handler))
    except CutoverError as error:
        typer.echo(f"cutover serve: {error}", err=True)
        raise typer.Exit(2) from error


async def _serve(
    config: Path, host: str | None, port: int | None, handler: logging.Handler
) -> None:
    async with AsyncExitStack() as stack:
        watched = _watched(config)
        if watched is not None:
            await stack.enter_async_context(watched.watching())
        first = in_force(watched)()
        handler.setFormatter(discreet(first, os.environ))
        listening = stack.enter_context(
            listen(host or first.server.host, first.server.port if port is None else port)
        )
        built = await stack.enter_async_context(application(watched, os.environ, host=host))
        serving = server(built.app, built.house.router, first.server.drain_seconds)
        typer.echo(f"cutover listening on {address(listening)}")
        for name, flow in first.flows.items():
            typer.echo(f"  {SPECS[name].path}  {name}: {flow.stage}")
        settle()
        await serving.serve(sockets=[listening])


def _watched(config: Path) -> Watched | None:
    """Read the file; without one at the default place, defaults are in force."""
    if config == DEFAULT_CONFIG and not config.exists():
        return None
    return Watched(config, SPECS)
