"""`cutover rollback`: everything of a flow to legacy, now, in every router that reads the file."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from contract.errors import CutoverError
from contract.flows import SPECS
from cutover.cli.terminal import refusals, terminal_user
from cutover.flows import DEFAULT_CONFIG
from cutover.pins import describe_moves
from cutover.wiring.history import record_change
from cutover.wiring.stacks import DEFAULTS
from router.admin.audit import Change, now
from router.admin.config_file import edit_flow

REFUSED = 2


class NoLegacyStack(CutoverError):
    """Legacy is not part of this deployment any more."""

    def __init__(self, flow: str) -> None:
        left = ", ".join(DEFAULTS)
        super().__init__(
            f"{flow!r} cannot be rolled back: there is no legacy stack, {left} serves everything; "
            "to go back, deploy a version that has both"
        )


def rollback(
    flow: Annotated[str, typer.Argument(help="The flow.")],
    config: Annotated[Path, typer.Option(help="The configuration.")] = DEFAULT_CONFIG,
) -> None:
    """Send everything of a flow to legacy: enable_langgraph = false, in force within a second.

    Needs no router and no token. Exit 0: it is off (also where it was already), 2: refused; then
    nothing was changed.
    """
    with refusals(REFUSED):
        if "legacy" not in DEFAULTS:
            raise NoLegacyStack(flow)
        edited = edit_flow(config, SPECS, flow, {"enable_langgraph": False})
    if not edited.changed:
        typer.echo(f"{flow} is off already in {config}: everything goes to legacy")
        return
    logging.basicConfig(level=logging.ERROR)
    change = Change(
        at=now(),
        who=terminal_user(),
        what="rollback",
        flow=flow,
        before=edited.before,
        after=edited.after,
    )
    record_change(change, edited.settings, os.environ)
    typer.echo(f"{flow}: enable_langgraph = false in {config}")
    typer.echo("routers that read this file send everything to legacy within a second")
    if edited.settings.flows[flow].history == "own":
        typer.echo(asyncio.run(describe_moves(flow, edited.settings, terminal_user())))
