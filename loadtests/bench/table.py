"""The rows of a bench as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from loadtests.bench.row import Row


def table(rows: Sequence[Row]) -> Table:
    """Lay rows out: figure, value, target, and whether it is met; the file says how."""
    laid = Table(title="bench", title_justify="left", box=None, pad_edge=False)
    laid.add_column("figure", overflow="fold")
    for heading in ("value", "target"):
        laid.add_column(heading, justify="right")
    laid.add_column("ok")
    for row in rows:
        value = f"{row.value:g} {row.unit}"
        target = "" if row.target is None else f"{row.target:g}"
        laid.add_row(row.name, value, target, verdict(row))
    return laid


def verdict(row: Row) -> str:
    """Say whether a row's target is met; nothing where it has none."""
    if row.ok is None:
        return "" if row.target is None else "[yellow]cannot tell[/]"
    return "[green]yes[/]" if row.ok else "[red]NO[/]"
