"""`cutover noise`: whether live runs of graph differ from legacy by more than legacy itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import DownloadColumn, TimeRemainingColumn
from rich.table import Table

from compare.input.segments import find_segments
from compare.noise import Noise, read_noise
from compare.noise.control import control_text
from compare.noise.study import MARGIN, Reading, flags_text, p_value_text, reading_text, study_text
from compare.report.markdown import noise_markdown
from cutover.cli.terminal import bar, print_outcome, print_written, refusals
from cutover.cluster import SchedulerOption, workers_at
from cutover.flows import flows_at
from effects.files import write_whole

EXIT: Mapping[Reading, int] = {"within noise": 0, "exceeds": 1, "cannot tell": 3}
UNREADABLE = 2
DIFFERENT = 1
_COLOURS: Mapping[Reading, str] = {
    "within noise": "green",
    "exceeds": "red",
    "cannot tell": "yellow",
}


def noise(
    captures: Annotated[
        str, typer.Argument(help="Captures in which graph called the model, live.")
    ],
    again: Annotated[
        list[str] | None,
        typer.Argument(help="More captures: legacy's runs of the same messages, live."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where noise.md and noise.json go.")
    ] = None,
    margin: Annotated[
        float, typer.Option(min=0.001, max=0.5, help="The least mean difference worth knowing.")
    ] = MARGIN,
    config: Annotated[
        Path | None,
        typer.Option(help="Where further flows are declared; default: cutover.toml, if there."),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that read; default: one per core if it is worth it."),
    ] = None,
    scheduler: SchedulerOption = None,
) -> None:
    """Measure how far legacy is from itself, and whether graph is farther.

    Runs are joined by what was asked. Exit 0: within noise, 1: exceeds it, or legacy differs from
    itself on one tape, 2: unreadable, 3: cannot tell.
    """
    with refusals(UNREADABLE):
        further, flows = again or (), flows_at(config)
        size = sum(segment.size for one in (captures, *further) for segment in find_segments(one))
        columns = DownloadColumn(), TimeRemainingColumn()
        with (
            workers_at(scheduler, processes) as workers,
            bar(Console(stderr=True), *columns) as shown,
        ):
            task = shown.add_task("measuring noise", total=size)
            found = read_noise(
                captures, further, flows, margin, workers, lambda count: shown.advance(task, count)
            )
        written = _write(found, out) if out is not None else []
    _print(found, written, Console())
    raise typer.Exit(_status(found))


def _status(found: Noise) -> int:
    if found.unread:
        return UNREADABLE
    return DIFFERENT if found.control.differing else EXIT[found.study.reading]


def _write(found: Noise, out: Path) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    text, document = out / "noise.md", out / "noise.json"
    write_whole(text, "\n".join(noise_markdown(found)).encode())
    write_whole(document, msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    return [text, document]


def _print(found: Noise, written: list[Path], console: Console) -> None:
    study = found.study
    lines = study_text(study), control_text(found.control)
    print_outcome(study.reading, _COLOURS[study.reading], lines, console)
    for reason, count in study.left_out.items():
        console.print(f"  [dim]{count:,} left out: {escape(reason)}[/]", highlight=False)
    if study.judgements:
        console.print(_table(found))
    print_written(written, console)


def _table(found: Noise) -> Table:
    table = Table(box=None, pad_edge=True, header_style="dim")
    for name in ("flow", "measure", "difference", "p", "reading", "flagged"):
        table.add_column(name, overflow="fold")
    for judged in found.study.judgements:
        interval = f"{judged.difference:+.3f} ({judged.low:+.3f} … {judged.high:+.3f})"
        cells = (
            judged.flow,
            judged.measure,
            interval,
            p_value_text(judged),
            reading_text(judged),
            flags_text(judged),
        )
        table.add_row(*map(escape, cells))
    return table
