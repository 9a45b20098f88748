"""`cutover gate`: promote, hold, roll back, or cannot tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.progress import DownloadColumn, TimeRemainingColumn

from compare.input.segments import find_segments
from compare.input.selection import Selection, moment
from contract.errors import CutoverError
from cutover.cli.terminal import bar, print_outcome, print_rows, print_written, refusals, tables
from cutover.flows import rules_at, settings_at
from cutover.gate import GateResult, evaluate
from cutover.reports import Format, selection_at, waivers_at, write_report
from effects.files import write_whole
from evidence.decision import EXIT_CODES, Decision, Verdict
from evidence.pages.gate import (
    WORDS,
    encode_decision,
    gate_markdown,
    gate_page,
    headline,
    reasons,
    view,
)

REFUSED: Final = 4
"""Exit status of what could not be asked at all: 0 to 3 are verdicts."""
ROWS: Final = "rows.jsonl"
_COLOURS: Final[Mapping[Verdict, str]] = {
    "promote": "green",
    "hold": "yellow",
    "rollback": "red",
    "cannot_tell": "yellow",
}


class ReportAmongCaptures(CutoverError):
    """The report is to be written where its rows would be read as captures."""

    def __init__(self, out: Path) -> None:
        why = f"is in the captures, and {ROWS} would be read as one: choose another folder"
        super().__init__(f"{str(out)!r} {why}")


def gate(
    captures: Annotated[str, typer.Argument(help="A folder, file or fsspec URL of captures.")],
    *,
    flow: Annotated[str, typer.Option(help="The flow to decide on.")] = "chat",
    to: Annotated[
        float, typer.Option(min=0, max=100, help="The percentage graph is to serve next.")
    ] = 100.0,
    load: Annotated[
        Path | None, typer.Option(help="A folder of `cutover load`, of pairs of runs.")
    ] = None,
    quality: Annotated[
        Path | None,
        typer.Option(help="Judgements of `cutover judge`; default: quality.json in CAPTURES."),
    ] = None,
    noise: Annotated[
        list[str] | None,
        typer.Option(help="Captures where legacy answered the same messages; may be repeated."),
    ] = None,
    since: Annotated[
        str, typer.Option(help="Leave out what began earlier: a time, or a duration such as 2h.")
    ] = "",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where the report goes.")] = None,
    formats: Annotated[
        list[Format] | None, typer.Option("--format", help="Repeat for several; default: all.")
    ] = None,
    rules: Annotated[Path | None, typer.Option(help="What does not count, as in diff.")] = None,
    waivers: Annotated[Path | None, typer.Option(help="What is accepted, as in diff.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="The configuration; default: cutover.toml, if it is there.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes that compare pairs.")
    ] = None,
) -> None:
    """Decide whether graph may serve more: promote, hold, roll back, or cannot tell.

    From outcomes by assigned stack, shadows, replays and load runs.

    Exit 0: promote, 1: hold, 2: roll back, 3: cannot tell, 4: it could not be decided at all.
    """
    with refusals(REFUSED):
        if out is not None and out.resolve().is_relative_to(Path(captures).resolve()):
            raise ReportAmongCaptures(out)
        settings = settings_at(config)
        begin = selection_at(since, "", "").since
        days = Selection(since=begin, flow=flow).days
        size = sum(segment.size for segment in find_segments(captures, days=days))
        with bar(Console(stderr=True), DownloadColumn(), TimeRemainingColumn()) as shown:
            task = shown.add_task("comparing", total=size)
            found = evaluate(
                captures,
                settings,
                flow,
                to=to,
                load=load,
                quality=quality,
                noise=noise or (),
                since=begin,
                rules=rules_at(rules, settings),
                waivers=waivers_at(waivers),
                processes=processes,
                on_bytes=lambda count: shown.advance(task, count),
            )
        written = [] if out is None else write_gate(found, out, formats or list(Format))
    _print(found.decision, written, tables())
    raise typer.Exit(EXIT_CODES[found.decision.verdict])


def write_gate(found: GateResult, out: Path, formats: Sequence[Format]) -> list[Path]:
    """Write a decision, the rows behind it and the comparison of pairs; returns the files."""
    decision, span = found.decision, span_of(found.decision)
    contents = {
        Format.html: lambda: gate_page(decision, span).encode("utf-8", "replace"),
        Format.md: lambda: gate_markdown(decision, span).encode("utf-8", "replace"),
        Format.json: lambda: encode_decision(decision),
    }
    out.mkdir(parents=True, exist_ok=True)
    files = {out / f"gate.{one.value}": contents[one]() for one in dict.fromkeys(formats)}
    files[out / ROWS] = msgspec.json.Encoder().encode_lines(found.outcomes)
    for path, content in files.items():
        write_whole(path, content)
    return [*files, *write_report(found.report, out, formats)]


def span_of(decision: Decision) -> str:
    """Write how many requests of when were compared."""
    if not decision.compared:
        return "no requests"
    first, last = moment(decision.first), moment(decision.last)
    return f"{decision.compared:,} requests from {first} to {last}"


def _print(decision: Decision, written: Sequence[Path], console: Console) -> None:
    verdict = decision.verdict
    print_outcome(headline(decision), _COLOURS[verdict], reasons(decision), console)
    views = [view(one) for one in decision.checks]
    titles = ("", "check", "legacy", "graph", "change", "allowed")
    cells = [
        (WORDS[one.check.verdict], one.title, one.legacy, one.graph, one.change, one.allowed)
        for one in views
    ]
    print_rows(console, titles, cells, lambda row: "  ".join(filter(None, row)))
    if decision.lasting:
        console.print("[bold]what rollback cannot undo[/]", highlight=False)
        for one in decision.lasting:
            line = f"  {one.count:,} × {one.store} {one.what}"
            if one.in_doubt:
                line += f", {one.in_doubt:,} of which may not have happened"
            console.print(line, highlight=False, markup=False)
    print_written(written, console)
