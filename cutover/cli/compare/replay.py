"""`cutover replay`: captured exchanges on the code as it is now."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from compare.report import Report
from compare.rules import Rules
from compare.sharing import Workers
from compare.verdict import NOT_ENOUGH, Label
from compare.waivers import Waivers
from contract.errors import visible
from contract.flow import FlowSpec
from cutover.cli.compare.diff import (
    CLUSTERS_PRINTED,
    COLOURS,
    EXIT,
    UNREADABLE,
    print_next,
    status_of,
    status_read,
    tallied,
)
from cutover.cli.terminal import bar, print_outcome, print_written, refusals, tables
from cutover.cluster import COMPARING, SchedulerOption, workers_at
from cutover.flows import flows_of, rules_at, settings_at
from cutover.probe import headers_of
from cutover.replay import (
    Counts,
    HeadersUnsent,
    PlayOptions,
    ReplayPlan,
    ReplayProgress,
    ReplaySelection,
    ServicePlan,
    cluster_needs,
    replay,
    sides_of,
)
from cutover.reports import (
    CaptureComparison,
    Format,
    report_on,
    waivers_at,
    write_report,
)
from cutover.wiring.stacks import prompt_folders

INTERRUPTED = 130
REPORT = "report"
CORES = os.cpu_count() or 1


class PaceChoice(StrEnum):
    """How fast a tape is played."""

    full = "full"
    recorded = "recorded"


class AgainstChoice(StrEnum):
    """Which stack a module's stack is compared with."""

    legacy = "legacy"
    graph = "graph"


_Captures = Annotated[str, typer.Argument(help="A folder, file or fsspec URL of captures.")]
_StackName = Annotated[
    str, typer.Option(help="legacy or graph, as [stacks] names them, or package.module:FLOWS.")
]
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
_Config = Annotated[
    Path | None,
    typer.Option(
        help="Stacks, their prompts, and which flows are declared; default: cutover.toml."
    ),
]
_Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header", help="For a service: sent with each request; 'name: value', repeat for several."
    ),
]
_NoReport = Annotated[bool, typer.Option("--no-report", help="Compare later.")]


def replay_captures(
    captures: _Captures,
    *,
    stack: _StackName,
    out: _Out,
    against: _Against = None,
    pace: _Pace = PaceChoice.full,
    processes: _Processes = CORES,
    scheduler: SchedulerOption = None,
    seconds: _Seconds = 10.0,
    limit: _Limit = None,
    only: _Only = None,
    no_report: _NoReport = False,
    config: _Config = None,
    header: _Headers = None,
) -> None:
    """Run captured exchanges on a stack as it is now, from the tape, and compare.

    A stack behind an address is a service that runs, with the code to be replayed: it gets each
    request as a shadow does, and the gateway answers its calls from the tape. Interrupted and
    started again with the same place, it goes on where it stopped. The report heeds diff.toml and
    waivers.toml if they are here. Exit 0: equal or all of it waived, 1: different, 2: unreadable or
    misused, 3: nothing replayed, 4: equal or waived, but part of the captures could not be read,
    long texts beside them included.
    """
    console = Console(stderr=True)
    try:
        with refusals(UNREADABLE):
            settings = settings_at(config)
            flows = settings.flows.items()
            declared = {name: one.declared for name, one in flows if one.declared is not None}
            opposed = against.value if against else None
            sides = sides_of(stack, opposed, prompt_folders(settings), settings.stacks)
            services = None
            if sides.requested.address is not None:
                services = ServicePlan(settings, os.environ, headers_of(header or ()))
            elif header:
                raise HeadersUnsent(sides.requested.name)
            plan = ReplayPlan(
                captures,
                out,
                sides,
                PlayOptions(pace.value, seconds, declared),
                ReplaySelection(frozenset(only or ()), limit),
                processes,
                services,
            )
            needs = COMPARING if scheduler is None else cluster_needs(plan)
            with workers_at(scheduler, processes, needs) as workers:
                counts = _replayed(plan, workers, console)
            accepted = rules_at(None, settings), waivers_at(None)
            wanted = counts.replayed and not no_report
            report = _compared(plan, flows_of(settings), *accepted, console) if wanted else None
    except KeyboardInterrupt:
        console.print("interrupted: the same command goes on where it stopped")
        raise typer.Exit(INTERRUPTED) from None
    label = _label(counts, report, accepted[0].missing)
    _print(plan, counts, report, label, tables())
    status = EXIT[label] if report is None or label == "incomplete" else status_of(report)
    # A pass of captures that could not be read to the last line is none.
    raise typer.Exit(status_read(status, counts))


def _replayed(plan: ReplayPlan, workers: Workers, console: Console) -> Counts:
    with bar(console, *_columns()) as shown:
        task = shown.add_task("replaying", total=1.0)

        def show(reached: ReplayProgress) -> None:
            share, exchanges = reached.share, reached.counts.exchanges
            if plan.selection.limit:
                share = max(share, exchanges / plan.selection.limit)
            description = f"replaying ({exchanges:,} exchanges)"
            shown.update(task, completed=min(share, 1.0), description=description)

        return replay(plan, show, workers)


def _compared(
    plan: ReplayPlan,
    known: Mapping[str, FlowSpec],
    rules: Rules,
    waivers: Waivers,
    console: Console,
) -> Report:
    workers = Workers(count=max(1, plan.processes))
    comparison = CaptureComparison(str(plan.out), "ignore", rules, waivers, workers, known)
    report = report_on(comparison, tallied(comparison, console, *_columns()))
    write_report(report, plan.out / REPORT, list(Format))
    return report


def _columns() -> tuple[ProgressColumn, ...]:
    return TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()


def _label(counts: Counts, report: Report | None, missing: float) -> Label:
    label: Label = "different" if counts.different else "equal"
    if report is not None:
        label = report.verdict.label
    elif not counts.replayed:
        label = "no data"
    passes = label in {"equal", "waived"}
    return "incomplete" if passes and counts.lost_share > missing else label


def _print(
    plan: ReplayPlan, counts: Counts, report: Report | None, label: Label, console: Console
) -> None:
    reasons = report.verdict.reasons if report is not None else ()
    headline = report.verdict.sentence if report is not None else label
    if label == "incomplete":
        headline = NOT_ENOUGH
    print_outcome(headline, COLOURS[label], reasons, console)
    if report is not None and report.verdict.label == label:
        print_next(report, console)
    console.print(_table(counts))
    for note in _notes(plan, counts):
        console.print(f"  [yellow]{escape(note)}[/]", highlight=False, soft_wrap=True)
    for cluster in report.clusters[:CLUSTERS_PRINTED] if report is not None else ():
        place = f"{cluster.flow} {cluster.path}"
        cause = f"{cluster.layer}: {cluster.title}, {place} ({cluster.exchanges:,})"
        console.print(f"  {escape(visible(cause))}", highlight=False, soft_wrap=True)
    left = len(report.clusters) - CLUSTERS_PRINTED if report is not None else 0
    if left > 0:
        console.print(f"  and {left:,} more in the report", highlight=False)
    for name in counts.named:
        console.print(
            f"  [dim]passed over {escape(visible(name))}[/]", highlight=False, soft_wrap=True
        )
    where = plan.out / REPORT / "report.html" if report is not None else plan.out
    print_written([where], console)


def _notes(plan: ReplayPlan, counts: Counts) -> Iterator[str]:
    """Yield what a service does that its replays show nothing of."""
    flows = plan.services.settings.flows.values() if plan.services is not None else ()
    if counts.different > counts.silent and any(flow.history == "own" for flow in flows):
        yield (
            "a service that was not started afresh for this replay has these conversations "
            "already, and they are in its prompts"
        )
    if counts.silent:
        yield (
            f"{counts.silent:,} replays called nothing through the gateway, though the recorded "
            "runs did: is base_url of its OpenAI client at [gateway] listen, with the gateway's "
            "key?"
        )
    if counts.outside:
        yield (
            f"{counts.outside:,} calls named no exchange and were refused: the service is to pass "
            "on the headers of the request (correlation.md)"
        )


def _table(counts: Counts) -> Table:
    """Return a table of all exchanges; equal and different are before rules and waivers."""
    table = Table(box=None, show_header=False, pad_edge=True)
    table.add_column(justify="right")
    table.add_column()
    for name in ("exchanges", "replayed", "equal", "different"):
        table.add_row(f"{getattr(counts, name):,}", name)
    groups = {
        "compared": counts.compared,
        "ended": counts.outcomes,
        "skipped": counts.skipped,
        "damaged": counts.damaged,
    }
    for title, group in groups.items():
        for name, count in sorted(group.items()):
            table.add_row(f"{count:,}", escape(visible(f"{title}: {name}")))
    return table
