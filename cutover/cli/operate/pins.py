"""`cutover pins`: show which stacks conversations are pinned to, and release them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer

from cutover.cli.terminal import print_rows, refusals, tables, terminal_user
from cutover.flows import DEFAULT_CONFIG, settings_at
from cutover.pins import PinControl, reaching_pins
from router.admin.audit import write_audit
from router.admin.pages import FlowPins, ReleasedPins
from router.config.errors import unknown_name
from router.config.schema import Settings
from router.stack import StackName

REFUSED = 2
_TITLES = ("flow", "legacy", "graph", "configured")

Found = TypeVar("Found")

Config = Annotated[Path, typer.Option(help="The configuration.")]
RouterUrl = Annotated[
    str,
    typer.Option(
        "--router",
        help="A router that offers /admin; for pins in its memory the configured one.",
        metavar="URL",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]

pins = typer.Typer(
    help="Show which stacks conversations are pinned to, and release them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


@pins.command("list")
def list_pins(
    config: Config = DEFAULT_CONFIG, *, router: RouterUrl = "", as_json: AsJson = False
) -> None:
    """Count the conversations of each flow that are pinned to legacy and to graph.

    Pins in a store are read there, those in the memory of a router by its operations API. Exit 0:
    shown; 2: they cannot be reached.
    """
    with refusals(REFUSED):
        page = _run(settings_at(config), router, lambda control: control.count())
    if as_json:
        for flow in page.flows:
            typer.echo(msgspec.json.encode(flow).decode())
    elif page.flows:
        print_rows(tables(), _TITLES, map(_cells, page.flows), _line)
    else:
        typer.echo("no conversation is pinned")


@pins.command("release")
def release_pins(
    flow: Annotated[str, typer.Argument(help="The flow.")],
    stack: Annotated[
        StackName | None, typer.Option(help="Only those pinned to it.", show_default="both")
    ] = None,
    config: Config = DEFAULT_CONFIG,
    *,
    router: RouterUrl = "",
    as_json: AsJson = False,
) -> None:
    """Release the conversations of a flow, so that the configured share holds for them.

    From their next turn on, in all routers within a second. Exit 0: released, also where none was
    pinned; 2: refused, or the pins cannot be reached.
    """
    with refusals(REFUSED):
        settings = settings_at(config)
        if flow not in settings.flows:
            raise unknown_name(str(config), f"flows.{flow}", settings.flows, "flow")
        logging.basicConfig(level=logging.ERROR)
        page = _run(settings, router, lambda control: control.release(flow, stack))
    typer.echo(msgspec.json.encode(page).decode() if as_json else _released(page))


def _run(settings: Settings, router: str, call: Callable[[PinControl], Awaitable[Found]]) -> Found:
    audit = partial(write_audit, Path(settings.admin.audit_path))

    async def reach() -> Found:
        async with reaching_pins(settings, os.environ, terminal_user(), audit, router) as control:
            return await call(control)

    return asyncio.run(reach())


def _cells(flow: FlowPins) -> tuple[str, ...]:
    return flow.flow, str(flow.legacy), str(flow.graph), f"{flow.percent:g} % on graph"


def _line(cells: tuple[str, ...]) -> str:
    flow, legacy, graph, configured = cells
    return f"{flow}: {legacy} on legacy, {graph} on graph, configured {configured}"


def _released(page: ReleasedPins) -> str:
    """Describe a release: how many there were, and what their next turn brings."""
    if not (page.legacy or page.graph):
        return f"{page.flow}: no conversation was pinned"
    about = "" if page.percent in {0, 100} else "about "
    text = (
        f"{page.flow}: released {page.legacy} conversations from legacy and {page.graph} from "
        f"graph; by the configured {page.percent:g} % on graph {about}{page.moving} of them change "
        "stacks with their next turn"
    )
    if page.losing:
        text += f", and up to {page.losing} lose their history: each stack stores its own"
    return text
