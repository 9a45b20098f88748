"""`cutover serve`: the router, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import uvloop

from contract.errors import CutoverError
from cutover.composition import House, opened
from cutover.flows import SPECS
from cutover.models import model_entries
from cutover.serve import address, listen, server
from router.app import create_app
from router.settings import parse
from router.watching import Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from router.settings import Settings

log = logging.getLogger(__name__)

DEFAULT_CONFIG = Path("cutover.toml")


def serve(
    config: Annotated[Path, typer.Option(help="The configuration.")] = DEFAULT_CONFIG,
    host: Annotated[str | None, typer.Option(help="Instead of [server] host.")] = None,
    port: Annotated[int | None, typer.Option(help="Instead of [server] port; 0 is any.")] = None,
) -> None:
    """Serve the flows; a change of cutover.toml is in force within a second."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # One line a model call would tell nothing the records do not.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        uvloop.run(_serve(config, host, port))
    except CutoverError as error:
        typer.echo(f"cutover serve: {error}", err=True)
        raise typer.Exit(2) from error


async def _serve(config: Path, host: str | None, port: int | None) -> None:
    async with AsyncExitStack() as stack:
        watched = _watched(config)
        if watched is not None:
            await stack.enter_async_context(watched.watching())
        settings = _current(watched)
        first = settings()
        listening = stack.enter_context(
            listen(host or first.server.host, first.server.port if port is None else port)
        )
        house = await stack.enter_async_context(opened(settings, os.environ))
        if watched is not None:
            watched.on_change(ModelsFollow(house, os.environ))
        app = create_app(house.router, _faults(house, watched))
        typer.echo(f"cutover listening on {address(listening)}")
        for name, flow in first.flows.items():
            typer.echo(f"  {SPECS[name].path}  {name}: {flow.stage}")
        await server(app, first.server.drain_seconds).serve(sockets=[listening])


def _watched(config: Path) -> Watched | None:
    """Read the file; without one at the default place, defaults are in force."""
    if config == DEFAULT_CONFIG and not config.exists():
        return None
    return Watched(config, SPECS)


def _current(watched: Watched | None) -> Callable[[], Settings]:
    if watched is not None:
        return lambda: watched.current
    defaults = parse("", str(DEFAULT_CONFIG), SPECS)
    return lambda: defaults


def _faults(house: House, watched: Watched | None) -> Callable[[], Mapping[str, str]]:
    def faults() -> Mapping[str, str]:
        found = dict(house.faults)
        if watched is not None and watched.fault is not None:
            found["configuration"] = watched.fault
        return found

    return faults


class ModelsFollow:
    """Puts changed models in force when the configuration changes."""

    def __init__(self, house: House, environ: Mapping[str, str]) -> None:
        self._house = house
        self._environ = environ
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, settings: Settings) -> None:
        """Take new settings; what is wrong with their models is told by `/readyz`."""
        try:
            entries = model_entries(settings, self._environ)
        except CutoverError as error:
            log.error("models stay as they are: %s", error)  # noqa: TRY400 - no traceback wanted
            self._house.faults["models"] = str(error)
            return
        self._house.faults.pop("models", None)
        task = asyncio.get_running_loop().create_task(self._house.models.replace(entries))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
