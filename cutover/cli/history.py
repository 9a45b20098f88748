"""`cutover history`: what was changed, when and by which user."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cutover.cli.terminal import UNFOLDED, refusals, tables
from cutover.flows import DEFAULT_CONFIG, settings_at
from cutover.wiring.history import opening
from router.admin.history import HistoryEntry
from router.config.errors import unknown_name

REFUSED = 2


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
        _show(found, tables())
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


def _show(entries: list[HistoryEntry], console: Console) -> None:
    """Print a table if the console is wide enough, else two lines a change."""
    table = _table(entries)
    wide = console.options.update(width=UNFOLDED)
    if console.measure(table, options=wide).maximum <= console.width:
        console.print(table)
        return
    for entry in entries:
        when, who, what, before, after, version = _cells(entry)
        lines = f"{when}  {who}, version {version}\n    {what}: {before} → {after}"
        console.print(Text(lines), soft_wrap=True)


def _table(entries: list[HistoryEntry]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("when (UTC)", "who", "what", "before", "after", "version"):
        table.add_column(title, no_wrap=True)
    for entry in entries:
        # As text: what people write into a file is no markup.
        table.add_row(*map(Text, _cells(entry)))
    return table


def _cells(entry: HistoryEntry) -> tuple[str, ...]:
    return (
        _moment(entry.at),
        entry.who,
        entry.what,
        bytes(entry.before).decode(),
        bytes(entry.after).decode(),
        entry.version,
    )


def _moment(at: int) -> str:
    return f"{datetime.fromtimestamp(at // 1_000_000, UTC):%Y-%m-%d %H:%M:%S}"
