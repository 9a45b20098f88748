"""`cutover replay`: captured exchanges on the code as it is now."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from compare.report.formats import visible
from cutover.cli.diff import CLUSTERS_PRINTED, COLOURS, EXIT, UNREADABLE, status_of, status_read
from cutover.cli.terminal import bar, refusals, tables, tell_written
from cutover.replay import Counts, How, Wanted, Wishes, replay, sides_of
from cutover.replay import Progress as Reached
from cutover.reports import Asked, Format, reported, rules_at, waivers_at, write_report

if TYPE_CHECKING:
    from compare.report import Report
    from compare.verdict import Label

INTERRUPTED = 130
REPORT = "report"
CORES = os.cpu_count() or 1


class PaceChoice(StrEnum):
    """How fast a tape is played."""

    full = "full"
    recorded = "recorded"


class AgainstChoice(StrEnum):
    """Which stack a stack of one's own is compared with."""

    legacy = "legacy"
    graph = "graph"


_Captures = Annotated[str, typer.Argument(help="A folder, file or fsspec URL of captures.")]
_StackName = Annotated[str, typer.Option(help="legacy, graph or package.module:FLOWS.")]
_Out = Annotated[Path, typer.Option("--out", "-o", help="Where replays and report go.")]
_Against = Annotated[
    AgainstChoice | None,
    typer.Option(help="For a stack of your own: what it is compared with; default: legacy."),
]
_Pace = Annotated[PaceChoice, typer.Option(help="Play at once, or at the recorded moments.")]
_Processes = Annotated[
    int,
    typer.Option(min=0, help="Worker processes; default: one per core; 0: here, to debug a stack."),
]
_Seconds = Annotated[float, typer.Option(min=0.1, help="What a run may take beyond its tape.")]
_Limit = Annotated[int | None, typer.Option(min=1, help="So many exchanges at most.")]
_Only = Annotated[list[str] | None, typer.Option(help="This exchange only; repeat for several.")]
_NoReport = Annotated[bool, typer.Option("--no-report", help="Compare later.")]


def replay_captures(
    captures: _Captures,
    *,
    stack: _StackName,
    out: _Out,
    against: _Against = None,
    pace: _Pace = PaceChoice.full,
    processes: _Processes = CORES,
    seconds: _Seconds = 10.0,
    limit: _Limit = None,
    only: _Only = None,
    no_report: _NoReport = False,
) -> None:
    """Run captured exchanges on a stack as it is now, from the tape, and compare.

    Interrupted and started again with the same place, it goes on where it stopped.
    The report heeds diff.toml and waivers.toml if they are here. Exit 0: equal or all of it
    waived, 1: different, 2: unreadable or misused, 3: nothing replayed, 4: equal or waived, but
    part of the captures could not be read.
    """
    _import_from_here()
    console = Console(stderr=True)
    try:
        with refusals(UNREADABLE):
            sides = sides_of(stack, against.value if against else None)
            wanted = Wanted(frozenset(only or ()), limit)
            wishes = Wishes(captures, out, sides, How(pace.value, seconds), wanted, processes)
            counts = _replayed(wishes, console)
            report = None if no_report else _compared(wishes, counts, console)
    except KeyboardInterrupt:
        console.print("interrupted: the same command goes on where it stopped")
        raise typer.Exit(INTERRUPTED) from None
    _tell(wishes, counts, report, tables())
    raise typer.Exit(_status(counts, report))


def _import_from_here() -> None:
    """Find a stack of one's own in the folder the command is typed in, as `python -m` does."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def _replayed(wishes: Wishes, console: Console) -> Counts:
    with _bar(console) as shown:
        task = shown.add_task("replaying", total=1.0)

        def hear(reached: Reached) -> None:
            share = reached.share
            if wishes.wanted.limit:
                share = max(share, reached.counts.exchanges / wishes.wanted.limit)
            said = f"replaying ({reached.counts.exchanges:,} exchanges)"
            shown.update(task, completed=min(share, 1.0), description=said)

        return replay(wishes, hear)


def _compared(wishes: Wishes, counts: Counts, console: Console) -> Report | None:
    """Write the report; None where nothing was replayed."""
    if not counts.replayed:
        return None
    processes = max(1, wishes.processes)
    asked = Asked(str(wishes.out), "ignore", rules_at(None), waivers_at(None), processes)
    with _bar(console) as shown:
        task = shown.add_task("comparing", total=asked.size)
        tally = asked.tally(lambda count: shown.advance(task, count))
    report = reported(asked, tally)
    write_report(report, wishes.out / REPORT, list(Format))
    return report


def _bar(console: Console) -> Progress:
    return bar(console, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())


def _status(counts: Counts, report: Report | None) -> int:
    """Give the exit status: a pass says so when captures could not be read to the last line."""
    status = EXIT[_label(counts, report)] if report is None else status_of(report)
    return status_read(status, counts)


def _label(counts: Counts, report: Report | None) -> Label:
    if report is not None:
        return report.verdict.label
    if not counts.replayed:
        return "no data"
    return "different" if counts.different else "equal"


def _tell(wishes: Wishes, counts: Counts, report: Report | None, console: Console) -> None:
    label = _label(counts, report)
    said = report.verdict.said if report is not None else label
    console.print(f"[bold {COLOURS[label]}]{escape(visible(said))}[/]", highlight=False)
    if report is not None:
        for reason in report.verdict.reasons:
            console.print(f"  {escape(visible(reason))}", highlight=False)
    console.print(_counted(counts))
    for cluster in report.clusters[:CLUSTERS_PRINTED] if report is not None else ():
        place = f"{cluster.flow} {cluster.path}"
        cause = f"{cluster.layer}: {cluster.title}, {place} ({cluster.exchanges:,})"
        console.print(f"  {escape(visible(cause))}", highlight=False)
    for name in counts.named:
        console.print(f"  [dim]passed over {escape(visible(name))}[/]", highlight=False)
    where = wishes.out / REPORT / "report.html" if report is not None else wishes.out
    tell_written([where], console)


def _counted(counts: Counts) -> Table:
    """Say what became of every exchange; equal and different are before rules and waivers."""
    table = Table(box=None, show_header=False, pad_edge=True)
    table.add_column(justify="right")
    table.add_column()
    rows = [
        ("exchanges", counts.exchanges),
        ("replayed", counts.replayed),
        ("equal", counts.equal),
        ("different", counts.different),
        *((f"compared: {basis}", count) for basis, count in sorted(counts.compared.items())),
        *((f"ended: {outcome}", count) for outcome, count in sorted(counts.outcomes.items())),
        *((f"skipped: {reason}", count) for reason, count in sorted(counts.skipped.items())),
        *((f"damaged: {kind}", count) for kind, count in sorted(counts.damaged.items())),
    ]
    for name, count in rows:
        table.add_row(f"{count:,}", escape(visible(name)))
    return table
