"""`cutover diff`: compare captured exchanges and write the report."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, Protocol

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import DownloadColumn, TimeRemainingColumn
from rich.table import Table

from compare.layers.prompt_sources import PromptMap
from compare.noise import read_noise
from compare.report import Report
from compare.report.document import with_noise, with_sources
from compare.report.formats import percent, visible
from cutover.cli.against import report_against
from cutover.cli.terminal import bar, refusals, tables, tell_written
from cutover.flows import SPECS, flows_at
from cutover.plain_reports import AskedPlain, asked_plain
from cutover.reports import (
    Asked,
    Format,
    NoiseMisplaced,
    NoPlaceForReport,
    PlacesMisread,
    prompt_map_at,
    reported,
    rules_at,
    waivers_at,
    write_report,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from compare.tally import Tally
    from compare.verdict import Label

EXIT: Mapping[Label, int] = {"equal": 0, "waived": 0, "different": 1, "no data": 3}
UNREADABLE = 2
DAMAGED = 4
CLUSTERS_PRINTED = 8
COLOURS: Mapping[Label, str] = {
    "equal": "green",
    "waived": "green",
    "different": "red",
    "no data": "yellow",
}


class Read(Protocol):
    """How many exchanges could be read, and what could not be."""

    @property
    def exchanges(self) -> int:
        """How many could be."""

    @property
    def damaged(self) -> Collection[object]:
        """What could not be."""


class ChunkingChoice(StrEnum):
    """Whether it counts where a text is cut into frames."""

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
    ChunkingChoice, typer.Option(help="Whether it counts where text is cut into frames.")
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
    chunking: _Chunking = ChunkingChoice.ignore,
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
    misused, 3: nothing to compare, 4: equal or waived, but part could not be read. Reports: exit 1
    when a cause that is not waived is new or has grown, else 0.
    """
    console = Console(stderr=True)
    with refusals(UNREADABLE):
        match places:
            case _ if noise and (dialect is not None or len(places) != 1):
                raise NoiseMisplaced
            case _ if dialect is not None:
                accepted = rules_at(rules), waivers_at(waivers)
                plain = asked_plain(places, dialect, chunking.value, *accepted)
                wanted = Wanted(out, formats or list(Format), prompt_map_at(prompts))
                status = _captures(plain, wanted, console)
            case [captures]:
                accepted = rules_at(rules), waivers_at(waivers)
                again, known = tuple(noise or ()), flows_at(config)
                asked = Asked(captures, chunking.value, *accepted, processes, again, known)
                wanted = Wanted(out, formats or list(Format), prompt_map_at(prompts))
                status = _captures(asked, wanted, console)
            case [older, newer]:
                status = report_against(Path(older), Path(newer), out, tables())
            case _:
                raise PlacesMisread(len(places))
    raise typer.Exit(status)


class Wanted(NamedTuple):
    """What is wanted of a report: where it goes, in which formats, by which map of prompts."""

    out: Path | None
    formats: list[Format]
    prompts: PromptMap


def _captures(asked: Asked | AskedPlain, wanted: Wanted, console: Console) -> int:
    """Compare captures; returns the exit status."""
    if wanted.out is None:
        raise NoPlaceForReport
    tally = _compared(asked, console)
    report = reported(asked, tally)
    if isinstance(asked, Asked) and asked.again:
        with console.status("measuring noise"):
            noise = read_noise(asked.captures, asked.again, SPECS)
        report = with_noise(report, noise)
    report = with_sources(report, wanted.prompts)
    _summary(report, write_report(report, wanted.out, wanted.formats), tables())
    return status_of(report)


def status_of(report: Report) -> int:
    """Give the exit status: a pass says so only of captures that were read to the last line."""
    return status_read(EXIT[report.verdict.label], report.counts)


def status_read(status: int, counts: Read) -> int:
    """Give the exit status of what was read: a pass of a part is none, nor is nothing at all."""
    if counts.damaged and not counts.exchanges:
        return UNREADABLE
    return DAMAGED if counts.damaged and not status else status


def _compared(asked: Asked | AskedPlain, console: Console) -> Tally:
    """Compare behind a bar that counts bytes read; only a terminal shows it."""
    with bar(console, DownloadColumn(), TimeRemainingColumn()) as shown:
        task = shown.add_task("comparing", total=asked.size)
        return asked.tally(lambda count: shown.advance(task, count))


def _summary(report: Report, written: list[Path], console: Console) -> None:
    verdict = report.verdict
    console.print(f"[bold {COLOURS[verdict.label]}]{verdict.said}[/]", highlight=False)
    for reason in verdict.reasons:
        console.print(f"  {escape(visible(reason))}", highlight=False)
    if report.clusters:
        console.print(_table(report))
    tell_written(written, console)


def _table(report: Report) -> Table:
    table = Table(box=None, pad_edge=True, header_style="dim")
    for name in ("share", "layer", "what", "where", "id"):
        table.add_column(name, overflow="fold", justify="right" if name == "share" else "left")
    for cluster in report.clusters[:CLUSTERS_PRINTED]:
        title = f"{cluster.title} (waived)" if cluster.waived else cluster.title
        where = f"{cluster.flow} {cluster.path}"
        cells = percent(cluster.share), cluster.layer, title, where, cluster.id
        table.add_row(*(escape(visible(cell)) for cell in cells))
    if len(report.clusters) > CLUSTERS_PRINTED:
        table.add_row("", "", f"… {len(report.clusters) - CLUSTERS_PRINTED} more", "", "")
    return table
