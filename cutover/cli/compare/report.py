"""`cutover report`: what captures show beside differences: the times of nodes."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import DownloadColumn, TimeRemainingColumn
from rich.table import Table

from compare.input.segments import find_segments
from compare.node_times import NodeReport, NodeTable, Times, read_node_times
from contract.errors import visible
from cutover.cli.terminal import bar, refusals, tables
from evidence.pages.formats import percent

UNREADABLE = 2

report = typer.Typer(
    help="Report what captures hold beside differences: the time in each node.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)


@report.callback()
def _group() -> None:
    """Make a group of what is one command so far."""


@report.command()
def nodes(
    captures: Annotated[
        str, typer.Argument(help="A folder, file or fsspec URL of captures.", metavar="CAPTURES")
    ],
    flow: Annotated[
        list[str] | None, typer.Option(help="Only this flow; repeat for several; default: all.")
    ] = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document instead of tables.")
    ] = False,
) -> None:
    """Report how long the nodes of each flow were open, both stacks side by side.

    Served runs, shadows and replays stand apart: what plays a tape does not wait for the world.
    Exit 0: shown, also where there are no runs; 2: nothing could be read.
    """
    console = Console(stderr=True)
    with refusals(UNREADABLE):
        size = sum(segment.size for segment in find_segments(captures))
        with bar(console, DownloadColumn(), TimeRemainingColumn()) as shown:
            task = shown.add_task("reading", total=size)
            found = read_node_times(captures, flow or (), lambda count: shown.advance(task, count))
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        _print(found, tables())
    raise typer.Exit(UNREADABLE if found.unread and not found.runs else 0)


def _print(found: NodeReport, console: Console) -> None:
    for table in found.tables:
        console.print(f"[bold]{escape(visible(table.flow))}[/], {table.role}", highlight=False)
        if table.nodes:
            console.print(_table(table))
        for stack, runs in table.untimed.items():
            text = f"  {visible(stack)}: {_runs(runs)} without a node"
            console.print(escape(text), highlight=False)
    if not found.runs:
        console.print("no runs", highlight=False)
    for kind, count in found.damaged.items():
        console.print(f"[yellow]{count:,} {kind}[/] passed over", highlight=False)
    for damage in found.damage:
        text = f"  {damage.kind}: {damage.place}: {damage.detail}"
        console.print(escape(visible(text)), highlight=False, style="dim", soft_wrap=True)


def _runs(count: int) -> str:
    return f"{count:,} run{'' if count == 1 else 's'}"


def _table(found: NodeTable) -> Table:
    table = Table(box=None, pad_edge=True, header_style="dim")
    table.add_column("node\n(times in ms)", overflow="fold")
    for stack in found.stacks:
        for title in (f"{escape(visible(stack))}\nruns", "\nmedian", "\nP95", "\nshare"):
            table.add_column(title, justify="right")
    for row in found.nodes:
        cells = [cell for stack in found.stacks for cell in _cells(row.stacks.get(stack))]
        table.add_row(escape(visible(row.node)), *cells)
    outside = [
        cell
        for stack in found.stacks
        for cell in ("", "", "", percent(found.outside[stack]) if stack in found.outside else "–")
    ]
    table.add_row("outside nodes", *outside, style="dim")
    totals = [cell for stack in found.stacks for cell in _cells(found.total.get(stack))]
    table.add_row("whole run", *totals, style="bold")
    return table


def _cells(times: Times | None) -> tuple[str, ...]:
    if times is None:
        return ("–",) * 4
    share = "–" if times.share is None else percent(times.share)
    return (f"{times.runs:,}", f"{times.median_ms:,.2f}", f"{times.p95_ms:,.2f}", share)
