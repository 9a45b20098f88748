"""`cutover diff OLDER NEWER`: what is new, gone, grown or shrunk between two reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from compare.report.changes import (
    Against,
    Trend,
    against,
    changes_document,
    changes_markdown,
    read_report,
)
from compare.report.formats import percent, visible
from cutover.cli.terminal import tell_written
from cutover.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.console import Console

EXIT: Mapping[Trend, int] = {"no worse": 0, "worse": 1, "no data": 3}
PRINTED = 20
_COLOURS: Mapping[Trend, str] = {"no worse": "green", "worse": "red", "no data": "yellow"}


def report_against(older: Path, newer: Path, out: Path | None, console: Console) -> int:
    """Hold two reports against each other, print and write; returns the exit status.

    Raises:
        ReportUnreadable: one of them is no report.
    """
    found = against(read_report(older), read_report(newer))
    console.print(f"[bold {_COLOURS[found.trend]}]{found.trend}[/]", highlight=False)
    for reason in found.reasons:
        console.print(f"  {escape(visible(reason))}", highlight=False)
    if any(change.turn != "same" for change in found.changes):
        console.print(_table(found))
    tell_written(_written(found, out) if out is not None else (), console)
    return EXIT[found.trend]


def _written(found: Against, out: Path) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "changes.md", out / "changes.json"]
    write_whole(paths[0], changes_markdown(found).encode("utf-8", "replace"))
    write_whole(paths[1], changes_document(found))
    return paths


def _table(found: Against) -> Table:
    table = Table(box=None, pad_edge=True, header_style="dim")
    for name in ("", "older", "newer", "layer", "what", "where", "id"):
        right = name in {"older", "newer"}
        table.add_column(name, overflow="fold", justify="right" if right else "left")
    moved = [change for change in found.changes if change.turn != "same"]
    for change in moved[:PRINTED]:
        cells = (
            change.turn + (" (waived)" if change.waived else "") + (" ?" if change.chance else ""),
            percent(change.older_share),
            percent(change.newer_share),
            change.layer,
            change.title,
            f"{change.flow} {change.path}",
            change.id,
        )
        table.add_row(*(escape(visible(cell)) for cell in cells))
    if len(moved) > PRINTED:
        table.add_row("", "", "", "", f"… {len(moved) - PRINTED} more", "", "")
    if any(change.chance for change in moved[:PRINTED]):
        table.caption = "? could be chance"
    return table
