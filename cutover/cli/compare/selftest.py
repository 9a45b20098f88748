"""`cutover selftest`: whether the comparison finds what it must, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from compare.findings import LAYERS
from compare.sharing import Workers
from contract.errors import visible
from cutover.cli.terminal import bar, print_written, refusals
from cutover.cluster import RUNNING, SchedulerOption, workers_at
from cutover.selftest.trials import DRAWN, PAIRS, DrawnTrial, Outcome, encode_outcome, self_test
from effects.files import write_whole

NOT_SOUND = 1
NOT_TESTED = 2
FILE = "selftest.json"


def selftest(
    *,
    pairs: Annotated[int, typer.Option(min=1, help="Equal pairs to compare.")] = PAIRS,
    faults: Annotated[int, typer.Option(min=0, help="Faults to draw beside the lists.")] = DRAWN,
    seed: Annotated[int, typer.Option(help="The seed of the drawn faults.")] = 0,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes that try; default: one per core.")
    ] = None,
    scheduler: SchedulerOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for the outcome as JSON.")
    ] = None,
) -> None:
    """Put faults into runs and code, and see what the comparison finds.

    Exit 0: every fault of the lists found as one cause on its layer, enough of the drawn ones, and
    no false alarm; 1: something of this does not hold; 2: it could not be tested.
    """
    console, path = Console(), None if out is None else out / FILE
    with refusals(NOT_TESTED):
        with workers_at(scheduler, processes, RUNNING) as workers:
            outcome = _tested(pairs, faults, seed, workers)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, encode_outcome(outcome))
    _print(outcome, console)
    print_written([] if path is None else [path], console)
    raise typer.Exit(0 if outcome.sound else NOT_SOUND)


def _tested(pairs: int, faults: int, seed: int, workers: Workers) -> Outcome:
    columns = MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
    with bar(Console(stderr=True), *columns) as shown:

        def start_bar(what: str, total: int) -> Callable[[int], None]:
            task = shown.add_task(what, total=total)
            return lambda count: shown.advance(task, count)

        return self_test(start_bar, pairs, drawn=faults, seed=seed, workers=workers)


def _print(outcome: Outcome, console: Console) -> None:
    console.print("[bold green]sound[/]" if outcome.sound else "[bold red]not sound[/]")
    _print_lines(outcome.reasons(), console)
    console.print(_table(outcome))
    _print_lines(
        (
            f"missed in {trial.place}: {trial.fault} ({trial.layer}: {trial.kind}); "
            f"found: {'; '.join(trial.found) or 'nothing'}"
            for trial in outcome.missed
        ),
        console,
    )
    _print_lines((line for trial in outcome.drawn for line in _drawn(trial)), console)
    _print_lines(
        (f"false alarm, seed {one.seed}: {'; '.join(one.found)}" for one in outcome.alarms.first),
        console,
    )


def _drawn(trial: DrawnTrial) -> Iterator[str]:
    """Yield what is wrong with how a drawn fault was found, if anything."""
    found = "; ".join(trial.found)
    if not trial.found:
        yield f"missed: drawn fault {trial.number}: {trial.fault}"
    elif not trial.on_layer:
        yield (
            f"not on {' or '.join(trial.layers)}: drawn fault {trial.number}: {trial.fault}; "
            f"found: {found}"
        )
    elif len(trial.found) > 1:
        yield (
            f"{len(trial.found)} causes: drawn fault {trial.number}: {trial.fault}; found: {found}"
        )


def _print_lines(lines: Iterable[str], console: Console) -> None:
    for line in lines:
        console.print(f"  {escape(visible(line))}", highlight=False, soft_wrap=True)


def _table(outcome: Outcome) -> Table:
    table = Table(box=None, pad_edge=True, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    groups = {f"listed faults found, {layer}": outcome.of_layer(layer) for layer in LAYERS}
    for title, trials in {**groups, "listed faults found": outcome.trials}.items():
        found = sum(trial.detected for trial in trials)
        table.add_row(title, f"{found} of {len(trials)}", _share(found, len(trials)))
    for rate in outcome.rates:
        interval = f"{_percent(rate.share)} ({100 * rate.low:.1f} to {100 * rate.high:.1f} %)"
        table.add_row(f"drawn faults {rate.text}", f"{rate.hits} of {rate.trials}", interval)
    alarms = outcome.alarms
    raised = f"{alarms.raised:,} of {alarms.pairs:,}"
    table.add_row("false alarms", raised, _share(alarms.raised, alarms.pairs))
    table.add_row("  of these pairs cut differently", f"{alarms.recut:,}", "")
    return table


def _share(part: int, whole: int) -> str:
    return _percent(part / whole) if whole else "no data"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
