"""`cutover diff`: compare captured exchanges and write the report, or compare two reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Protocol

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import DownloadColumn, ProgressColumn, TimeRemainingColumn
from rich.table import Table

from compare.input.selection import EVERYTHING
from compare.noise import LegacyAgain
from compare.report import Report
from compare.report.changes import (
    Against,
    Trend,
    against,
    changes_document,
    changes_markdown,
    read_report,
)
from compare.report.document import with_sources
from compare.report.glimpse import cluster_glimpse
from compare.sharing import HERE
from compare.tally import Tally
from compare.verdict import Label
from contract.errors import visible
from cutover.cli.terminal import bar, print_outcome, print_written, refusals, tables
from cutover.cluster import SchedulerOption, workers_at
from cutover.flows import flows_of, rules_at, settings_at
from cutover.reports import (
    CaptureComparison,
    Comparison,
    Format,
    NoiseMisplaced,
    NoPlaceForReport,
    PlacesMisread,
    SchedulerMisplaced,
    SelectionMisplaced,
    StreamComparison,
    prompt_map_at,
    report_on,
    selection_at,
    waivers_at,
    write_report,
)
from effects.files import write_whole
from evidence.pages.formats import percent

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
    Path | None,
    typer.Option(
        help="What does not count; default: that of [shadow] rules, else diff.toml if it is there."
    ),
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

_Since = Annotated[
    str,
    typer.Option(
        metavar="WHEN",
        help="Only exchanges that began then or later: an ISO time with its zone, or a duration "
        "such as 90m, 2h or 7d before now.",
    ),
]
_Until = Annotated[
    str, typer.Option(metavar="WHEN", help="Only exchanges that began before; as --since.")
]
_Configuration = Annotated[
    str,
    typer.Option(
        metavar="VERSION",
        help="Only exchanges recorded under this version of the configuration, as the router's log "
        "and the records show it (`config`).",
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
    scheduler: SchedulerOption = None,
    noise: _Again = None,
    config: _Config = None,
    prompts: _PromptMap = None,
    since: _Since = "",
    until: _Until = "",
    configuration: _Configuration = "",
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
        if scheduler is not None and (dialect is not None or len(places) != 1):
            raise SchedulerMisplaced
        selection = selection_at(since, until, configuration)
        if selection != EVERYTHING and (dialect is not None or len(places) != 1):
            raise SelectionMisplaced
        if dialect is None and len(places) != 1:
            match list(map(Path, places)):
                case [older, newer]:
                    raise typer.Exit(report_against(older, newer, out, tables()))
                case _:
                    raise PlacesMisread(len(places))
        settings = settings_at(config)
        accepted = rules_at(rules, settings), waivers_at(waivers)
        comparison: Comparison
        if dialect is not None:
            comparison = StreamComparison.of(places, dialect, chunking.value, *accepted)
        else:
            known = flows_of(settings)
            comparison = CaptureComparison(
                places[0],
                chunking.value,
                *accepted,
                HERE,
                known,
                selection,
                noise="joined" if noise else "",
            )
        sources = prompt_map_at(prompts)
        if out is None:
            raise NoPlaceForReport
        measured = again = None
        with workers_at(scheduler, processes) as workers:
            if noise:
                with console.status("reading legacy's answers"):
                    again = LegacyAgain.read(noise, flows_of(settings), workers)
            if isinstance(comparison, CaptureComparison):
                comparison = replace(comparison, workers=workers)
            tally = tallied(comparison, console, DownloadColumn(), TimeRemainingColumn())
        if again is not None:
            with console.status("measuring noise"):
                measured = again.noise(tally.noise, tally.control)
        report = with_sources(report_on(comparison, tally, measured), sources)
        _print(report, write_report(report, out, formats or list(Format)), tables())
    raise typer.Exit(status_of(report))


def tallied(comparison: Comparison, console: Console, *columns: ProgressColumn) -> Tally:
    """Compare under a progress bar that ends with these columns."""
    with bar(console, *columns) as shown:
        task = shown.add_task("comparing", total=comparison.size)
        return comparison.tally(lambda count: shown.advance(task, count))


def status_of(report: Report) -> int:
    """Return the exit status: a pass is one only of captures that were read to the last line."""
    status = EXIT[report.verdict.label]
    if report.selection is not None and not report.counts.exchanges:
        return status  # what was read is not selected; that says nothing of what could not be read
    return status_read(status, report.counts)


def status_read(status: int, counts: ReadCounts) -> int:
    """Return the exit status of what was read: a pass of a part is none, nor is one of nothing."""
    unread = set(counts.damaged) - {"duplicate"}  # all of it was read, and counted once
    if unread and not counts.exchanges:
        return UNREADABLE
    return DAMAGED if unread and not status else status


def _print(report: Report, written: list[Path], console: Console) -> None:
    verdict = report.verdict
    print_outcome(verdict.sentence, COLOURS[verdict.label], verdict.reasons, console)
    print_next(report, console)
    if report.clusters:
        console.print(_causes(report, values=console.width >= VALUES_FROM))
    print_written(written, console)


def print_next(report: Report, console: Console) -> None:
    """Print what to do next."""
    if report.next_step is not None:
        text = escape(visible(report.next_step.text))
        console.print(f"  [bold]next:[/] {text}", highlight=False)


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
        seen = cluster_glimpse(cluster, GLIMPSED) or ()
        sides = " → ".join("–" if it is None else it for it in seen)
        if values:
            cells.append(sides)
        elif sides:
            cells[3] += f"\n{sides}"
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
