"""`cutover diff`: compare captured exchanges and write the report, or compare two reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Protocol

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import DownloadColumn, ProgressColumn, TimeRemainingColumn
from rich.table import Table

from compare.noise import read_noise
from compare.report import Report
from compare.report.changes import (
    Against,
    Trend,
    against,
    changes_document,
    changes_markdown,
    read_report,
)
from compare.report.document import with_noise, with_sources
from compare.report.formats import percent
from compare.report.glimpse import cluster_glimpse
from compare.verdict import Label
from contract.errors import visible
from cutover.cli.terminal import bar, print_outcome, print_written, refusals, tables
from cutover.flows import flows_at
from cutover.reports import (
    CaptureComparison,
    Comparison,
    Format,
    NoiseMisplaced,
    NoPlaceForReport,
    PlacesMisread,
    StreamComparison,
    prompt_map_at,
    report_on,
    rules_at,
    waivers_at,
    write_report,
)
from effects.files import write_whole

UNREADABLE = 2
DAMAGED = 4
EXIT: Mapping[Label, int] = {
    "equal": 0,
    "waived": 0,
    "different": 1,
    "incomplete": DAMAGED,
    "no data": 3,
}
CLUSTERS_PRINTED = 8
GLIMPSED = 24
"""Characters of each side's value in the table of causes."""
VALUES_FROM = 120
"""Columns of a terminal from which there is room for values."""
COLOURS: Mapping[Label, str] = {
    "equal": "green",
    "waived": "green",
    "different": "red",
    "incomplete": "yellow",
    "no data": "yellow",
}
TREND_EXIT: Mapping[Trend, int] = {"no worse": 0, "worse": 1, "no data": 3}
CHANGES_PRINTED = 20
_TREND_COLOURS: Mapping[Trend, str] = {"no worse": "green", "worse": "red", "no data": "yellow"}


class ReadCounts(Protocol):
    """How many exchanges were read, and what could not be."""

    @property
    def exchanges(self) -> int:
        """How many were read."""

    @property
    def damaged(self) -> Collection[object]:
        """What could not be read."""


class ChunkingChoice(StrEnum):
    """Whether it counts where a text is cut into frames: on one tape, nowhere or everywhere."""

    tape = "tape"
    ignore = "ignore"
    exact = "exact"


_Places = Annotated[
    list[str],
    typer.Argument(
        help="One place: a folder, file or fsspec URL of captures. "
        "Two: an older and a newer report.json, or the folders that hold them; "
        "with --dialect, recorded streams of legacy and of graph.",
        metavar="CAPTURES | OLDER NEWER | LEGACY GRAPH",
    ),
]
_Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Where the report goes; captures need it.")
]
_Chunking = Annotated[
    ChunkingChoice,
    typer.Option(
        help="Whether it counts where text is cut into frames: where both runs were played one "
        "tape, nowhere, or everywhere."
    ),
]
_Formats = Annotated[
    list[Format] | None, typer.Option("--format", help="Repeat for several; default: all.")
]
_RuleFile = Annotated[
    Path | None, typer.Option(help="What does not count; default: diff.toml, if it is there.")
]
_WaiverFile = Annotated[
    Path | None, typer.Option(help="What is accepted; default: waivers.toml, if it is there.")
]
_Again = Annotated[
    list[str] | None,
    typer.Option(
        "--noise",
        help="Captures of legacy running the same messages again, live: measure what live model "
        "calls differ by. Repeat for several.",
    ),
]
_DialectName = Annotated[
    str | None,
    typer.Option(help="Compare plain recorded streams, on this wire: a name or a TOML file."),
]
_Processes = Annotated[
    int | None,
    typer.Option(min=1, help="Processes that compare; default: one per core if it is worth it."),
]
_Config = Annotated[
    Path | None,
    typer.Option(
        help="The configuration that declares the flows captured; default: cutover.toml, "
        "if it is there."
    ),
]
_PromptMap = Annotated[
    Path | None,
    typer.Option(
        "--prompts",
        help="The map of prompts `cutover prompts` writes: names template, line and variable; "
        "default: prompts.map.json, if it is there.",
    ),
]


def diff(
    places: _Places,
    out: _Out = None,
    chunking: _Chunking = ChunkingChoice.tape,
    formats: _Formats = None,
    rules: _RuleFile = None,
    waivers: _WaiverFile = None,
    dialect: _DialectName = None,
    processes: _Processes = None,
    noise: _Again = None,
    config: _Config = None,
    prompts: _PromptMap = None,
) -> None:
    """Compare legacy and graph on captured exchanges, or one report with an older one.

    Captures and streams: exit 0: equal or all of it waived, 1: different, 2: unreadable or
    misused, 3: nothing to compare, 4: equal or waived, but part could not be read, or too many
    runs are missing or duplicated. Reports: exit 1 when a cause that is not waived is new or has
    grown, else 0.
    """
    console = Console(stderr=True)
    with refusals(UNREADABLE):
        if noise and (dialect is not None or len(places) != 1):
            raise NoiseMisplaced
        if dialect is None and len(places) != 1:
            match list(map(Path, places)):
                case [older, newer]:
                    raise typer.Exit(report_against(older, newer, out, tables()))
                case _:
                    raise PlacesMisread(len(places))
        accepted = rules_at(rules), waivers_at(waivers)
        comparison: Comparison
        if dialect is not None:
            comparison = StreamComparison.of(places, dialect, chunking.value, *accepted)
        else:
            known = flows_at(config)
            comparison = CaptureComparison(places[0], chunking.value, *accepted, processes, known)
        sources = prompt_map_at(prompts)
        if out is None:
            raise NoPlaceForReport
        report = compared(comparison, console, DownloadColumn(), TimeRemainingColumn())
        if noise:
            with console.status("measuring noise"):
                report = with_noise(report, read_noise(places[0], tuple(noise), flows_at(config)))
        report = with_sources(report, sources)
        _print(report, write_report(report, out, formats or list(Format)), tables())
    raise typer.Exit(status_of(report))


def compared(comparison: Comparison, console: Console, *columns: ProgressColumn) -> Report:
    """Compare under a progress bar that ends with these columns, and sum the pairs up."""
    with bar(console, *columns) as shown:
        task = shown.add_task("comparing", total=comparison.size)
        tally = comparison.tally(lambda count: shown.advance(task, count))
    return report_on(comparison, tally)


def status_of(report: Report) -> int:
    """Return the exit status: a pass is one only of captures that were read to the last line."""
    return status_read(EXIT[report.verdict.label], report.counts)


def status_read(status: int, counts: ReadCounts) -> int:
    """Return the exit status of what was read: a pass of a part is none, nor is one of nothing."""
    unread = set(counts.damaged) - {"duplicate"}  # all of it was read, and counted once
    if unread and not counts.exchanges:
        return UNREADABLE
    return DAMAGED if unread and not status else status


def _print(report: Report, written: list[Path], console: Console) -> None:
    verdict = report.verdict
    print_outcome(verdict.sentence, COLOURS[verdict.label], verdict.reasons, console)
    if report.clusters:
        console.print(_causes(report, values=console.width >= VALUES_FROM))
    print_written(written, console)


def _causes(report: Report, *, values: bool) -> Table:
    shown = [" → ".join(report.sides)] if values else []
    table = _empty_table("share", "", "layer", "what", "where", *shown, "id")
    for cluster in report.clusters[:CLUSTERS_PRINTED]:
        cells = [
            percent(cluster.share),
            cluster.severity,
            cluster.layer,
            f"{cluster.title} (waived)" if cluster.waived else cluster.title,
            f"{cluster.flow} {cluster.path}",
        ]
        if values:
            seen = cluster_glimpse(cluster, GLIMPSED) or ()
            cells.append(" → ".join("–" if it is None else it for it in seen))
        table.add_row(*(escape(visible(cell)) for cell in (*cells, cluster.id)))
    if len(report.clusters) > CLUSTERS_PRINTED:
        table.add_row("", "", "", f"… {len(report.clusters) - CLUSTERS_PRINTED:,} more")
    return table


def _empty_table(*names: str) -> Table:
    table = Table(box=None, pad_edge=True, header_style="dim")
    for name in names:
        right = name in {"share", "older", "newer"}
        table.add_column(name, overflow="fold", justify="right" if right else "left")
    return table


def report_against(older: Path, newer: Path, out: Path | None, console: Console) -> int:
    """Compare two reports, print and write the changes; returns the exit status.

    Raises `ReportUnreadable`.
    """
    found = against(read_report(older), read_report(newer))
    print_outcome(found.trend, _TREND_COLOURS[found.trend], found.reasons, console)
    if any(change.turn != "same" for change in found.changes):
        console.print(_changes(found))
    print_written(_write_changes(found, out) if out is not None else (), console)
    return TREND_EXIT[found.trend]


def _write_changes(found: Against, out: Path) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "changes.md", out / "changes.json"]
    write_whole(paths[0], changes_markdown(found).encode("utf-8", "replace"))
    write_whole(paths[1], changes_document(found))
    return paths


def _changes(found: Against) -> Table:
    table = _empty_table("", "older", "newer", "layer", "what", "where", "id")
    moved = [change for change in found.changes if change.turn != "same"]
    for change in moved[:CHANGES_PRINTED]:
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
    if len(moved) > CHANGES_PRINTED:
        table.add_row("", "", "", "", f"… {len(moved) - CHANGES_PRINTED} more", "", "")
    if any(change.chance for change in moved[:CHANGES_PRINTED]):
        table.caption = "? could be chance"
    return table
