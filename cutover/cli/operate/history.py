"""`cutover history`: what was changed, when and by which user."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from cutover.cli.terminal import print_rows, refusals, tables
from cutover.flows import DEFAULT_CONFIG, settings_at
from cutover.wiring.history import opening
from router.admin.history import HistoryEntry
from router.config.errors import unknown_name

REFUSED = 2
_TITLES = ("when (UTC)", "who", "what", "before", "after", "version")


def history(
    flow: Annotated[str, typer.Argument(help="Only this flow; default: everything.")] = "",
    config: Annotated[Path, typer.Option(help="The configuration.")] = DEFAULT_CONFIG,
    *,
    limit: Annotated[int, typer.Option(help="How many, the newest first.", min=1)] = 50,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON line each instead of a table.")
    ] = False,
) -> None:
    """Show the changes that came in force on this host, newest first.

    Exit 0: shown, also where there are none; 2: the history cannot be read.
    """
    with refusals(REFUSED):
        found = asyncio.run(_read(config, flow, limit))
    if as_json:
        for entry in found:
            typer.echo(msgspec.json.encode(entry).decode())
    elif found:
        print_rows(tables(), _TITLES, map(_cells, found), _lines)
    else:
        typer.echo("no change yet")


async def _read(config: Path, flow: str, limit: int) -> list[HistoryEntry]:
    settings = settings_at(config)
    if flow and flow not in settings.flows:
        raise unknown_name(str(config), f"flows.{flow}", settings.flows, "flow")
    made = opening(settings, os.environ)
    if made is None:
        return []
    async with made as stored:
        return await stored.entries(flow, limit)


def _cells(entry: HistoryEntry) -> tuple[str, ...]:
    return (
        _moment(entry.at),
        entry.who,
        entry.what,
        bytes(entry.before).decode(),
        bytes(entry.after).decode(),
        entry.version,
    )


def _lines(cells: tuple[str, ...]) -> str:
    when, who, what, before, after, version = cells
    return f"{when}  {who}, version {version}\n    {what}: {before} → {after}"


def _moment(at: int) -> str:
    return f"{datetime.fromtimestamp(at // 1_000_000, UTC):%Y-%m-%d %H:%M:%S}"
