"""`cutover selftest`: whether the comparison finds what it must, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from compare.findings import LAYERS
from compare.report.formats import visible
from cutover.cli.terminal import bar, refusals, tell_written
from cutover.files import write_whole
from cutover.selftest.mutants import SAMPLED
from cutover.selftest.outcome import Outcome, encode_outcome
from cutover.selftest.testing import PAIRS, Wishes, self_test

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cutover.selftest.mutants import Mutants

NOT_SOUND = 1
NOT_TESTED = 2
FILE = "selftest.json"


def selftest(
    *,
    pairs: Annotated[int, typer.Option(min=1, help="Equal pairs to compare.")] = PAIRS,
    mutants: Annotated[
        bool, typer.Option(help="Try mutants of the graph stack: a sample, always the same.")
    ] = True,
    every: Annotated[bool, typer.Option("--all", help="Try every mutant there is.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for the outcome as JSON.")
    ] = None,
) -> None:
    """Put faults into runs and code, and see what the comparison finds.

    Exit 0: every fault found as one cause on its layer, no false alarm, no mutant survived
    unexplained; 1: something of this does not hold; 2: it could not be tested.
    """
    drawn = SAMPLED if mutants else 0
    with refusals(NOT_TESTED):
        with _bar(Console(stderr=True)) as shown:
            outcome = self_test(Wishes(pairs, None if every else drawn), _told(shown))
        written = _written(outcome, out)
    _tell(outcome, Console())
    tell_written(written, Console())
    raise typer.Exit(0 if outcome.sound else NOT_SOUND)


def _written(outcome: Outcome, out: Path | None) -> list[Path]:
    if out is None:
        return []
    out.mkdir(parents=True, exist_ok=True)
    path = out / FILE
    write_whole(path, encode_outcome(outcome))
    return [path]


def _bar(console: Console) -> Progress:
    columns = MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
    return bar(console, *columns)


def _told(shown: Progress) -> Callable[[str, int], Callable[[int], None]]:
    def told(what: str, total: int) -> Callable[[int], None]:
        task = shown.add_task(what, total=total)
        return lambda count: shown.advance(task, count)

    return told


def _tell(outcome: Outcome, console: Console) -> None:
    reasons = list(outcome.reasons())
    said = "[bold red]not sound[/]" if reasons else "[bold green]sound[/]"
    console.print(said, highlight=False)
    _lines(reasons, console)
    console.print(_table(outcome))
    for trial in outcome.missed:
        found = "; ".join(trial.found) or "nothing"
        wanted = f"{trial.layer}: {trial.kind}"
        _lines([f"missed in {trial.place}: {trial.fault} ({wanted}); found: {found}"], console)
    for alarm in outcome.alarms.first:
        _lines([f"false alarm, seed {alarm.seed}: {'; '.join(alarm.found)}"], console)
    if outcome.mutants is not None:
        _survivors(outcome.mutants, console)


def _lines(lines: Iterable[str], console: Console) -> None:
    for line in lines:
        console.print(f"  {escape(visible(line))}", highlight=False, soft_wrap=True)


def _table(outcome: Outcome) -> Table:
    table = Table(box=None, pad_edge=True, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    for layer in LAYERS:
        there = outcome.of_layer(layer)
        found = sum(trial.detected for trial in there)
        table.add_row(
            f"faults found, {layer}", f"{found} of {len(there)}", _share(found, len(there))
        )
    found = len(outcome.trials) - len(outcome.missed)
    table.add_row(
        "faults found", f"{found} of {len(outcome.trials)}", _share(found, len(outcome.trials))
    )
    alarms = outcome.alarms
    table.add_row(
        "false alarms",
        f"{alarms.raised:,} of {alarms.pairs:,}",
        _share(alarms.raised, alarms.pairs),
    )
    table.add_row("  of these pairs cut differently", f"{alarms.recut:,}", "")
    if outcome.mutants is not None:
        _mutant_rows(outcome.mutants, table)
    return table


def _mutant_rows(mutants: Mutants, table: Table) -> None:
    table.add_row(
        "mutants found",
        f"{mutants.found} of {mutants.telling}",
        _share(mutants.found, mutants.telling),
    )
    for way, count in sorted(mutants.ways.items(), key=lambda item: -item[1]):
        table.add_row(f"  {way}", str(count), "")
    explained = len(mutants.survivors) - len(mutants.unexplained)
    table.add_row("mutants that change nothing, explained", str(explained), "")
    table.add_row("mutants tried", f"{mutants.tried} of {mutants.there_are}", "")


def _survivors(mutants: Mutants, console: Console) -> None:
    for survivor in mutants.survivors:
        why = survivor.reason or "SURVIVED, UNEXPLAINED"
        _lines([f"{survivor.place} {survivor.function}: {survivor.change}: {why}"], console)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "no data"
