"""`cutover diff`: compare captured exchanges and write the report."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from compare import CapturesUnreadable, Question, compare_captures, find_segments
from compare.report import Report, report_of
from compare.report.legible import percent, visible
from cutover.diffing import Format, write_report
from cutover.flows import SPECS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compare.tally import Tally
    from compare.verdict import Label

EXIT: Mapping[Label, int] = {"equal": 0, "different": 1, "no data": 3}
UNREADABLE = 2
CLUSTERS_PRINTED = 8
_COLOURS: Mapping[Label, str] = {"equal": "green", "different": "red", "no data": "yellow"}


class ChunkingChoice(StrEnum):
    """Whether it counts where a text is cut into frames."""

    ignore = "ignore"
    exact = "exact"


def diff(
    captures: Annotated[str, typer.Argument(help="A folder, file or fsspec URL of captures.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the report goes.")],
    chunking: Annotated[
        ChunkingChoice, typer.Option(help="Whether it counts where text is cut into frames.")
    ] = ChunkingChoice.ignore,
    formats: Annotated[
        list[Format] | None, typer.Option("--format", help="Repeat for several; default: all.")
    ] = None,
) -> None:
    """Compare legacy and graph on captured exchanges.

    Exit 0: equal, 1: different, 2: unreadable or misused, 3: nothing to compare.
    """
    console = Console(stderr=True)
    question = Question(SPECS, chunking.value)
    try:
        tally = _compared(captures, question, console)
        report = report_of(tally, captures, chunking.value)
        written = write_report(report, out, formats or list(Format))
    except (CapturesUnreadable, OSError) as trouble:
        console.print(f"[red]error:[/] {escape(visible(str(trouble)))}", highlight=False)
        raise typer.Exit(UNREADABLE) from trouble
    _summary(report, written, Console())
    raise typer.Exit(EXIT[report.verdict.label])


def _compared(captures: str, question: Question, console: Console) -> Tally:
    """Compare behind a bar that counts bytes read; only a terminal shows it."""
    size = sum(segment.size for segment in find_segments(captures))
    columns = (
        TextColumn("comparing"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("comparing", total=size)
        return compare_captures(captures, question, lambda count: bar.advance(task, count))


def _summary(report: Report, written: list[Path], console: Console) -> None:
    verdict = report.verdict
    console.print(f"[bold {_COLOURS[verdict.label]}]{verdict.label}[/]")
    for reason in verdict.reasons:
        console.print(f"  {escape(visible(reason))}", highlight=False)
    if report.clusters:
        console.print(_table(report))
    for path in written:
        console.print(f"[dim]{escape(str(path))}[/]", highlight=False, soft_wrap=True)


def _table(report: Report) -> Table:
    table = Table(box=None, pad_edge=True, header_style="dim")
    for name in ("share", "layer", "what", "where", "id"):
        table.add_column(name, overflow="fold", justify="right" if name == "share" else "left")
    for cluster in report.clusters[:CLUSTERS_PRINTED]:
        cells = percent(cluster.share), cluster.layer, cluster.title, cluster.path, cluster.id
        table.add_row(*(escape(visible(cell)) for cell in cells))
    if len(report.clusters) > CLUSTERS_PRINTED:
        table.add_row("", "", f"… {len(report.clusters) - CLUSTERS_PRINTED} more", "", "")
    return table
