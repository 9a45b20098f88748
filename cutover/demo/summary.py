"""What a demonstration tells at its end."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from loadtests.report import void_lines

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from compare.report.document import ClusterReport
    from cutover.demo.question import Stream
    from cutover.demo.sending import Answered
    from cutover.demo.story import Outcome
    from loadtests.comparison import StackSummary

_SHOWN = {
    "ttfe": "first frame",
    "ttft": "first text",
    "ttle": "last frame",
}


def failures(outcome: Outcome) -> list[str]:
    """Say what did not go as it should; empty when the demonstration succeeded."""
    found: list[str] = []
    broken = sum(not answer.complete for answer in outcome.answers)
    if broken:
        found.append(f"{broken} of {len(outcome.answers)} answers were not complete")
    crash = outcome.crash
    if crash is None or not crash.complete or not crash.takeover:
        found.append("the planted crash was not taken over")
    if not _gone_on(outcome):
        found.append("the question to the user was not gone on from on the other stack")
    found += [
        f"a difference that was not planted: {cluster.title}"
        for cluster in (outcome.report.clusters if outcome.report else ())
        if not _planted(cluster, outcome)
    ]
    if outcome.report is None or not outcome.report.counts.pairs:
        found.append("nothing was compared")
    return found


def _gone_on(outcome: Outcome) -> bool:
    """Whether the question went over to legacy; a real model need not have asked any."""
    asked = outcome.asked
    if asked is None or asked.gone_on is None:
        return asked is not None and not outcome.simulated
    stacks = asked.put.served, asked.gone_on.served
    ends = asked.put.status, asked.gone_on.status
    return (stacks, ends) == (("graph", "legacy"), ("suspended", "completed"))


def _planted(cluster: ClusterReport, outcome: Outcome) -> bool:
    """Whether a difference is the planted crash, and nothing but it."""
    seen = {exemplar.exchange for exemplar in cluster.exemplars}
    return cluster.exchanges == 1 and outcome.crash is not None and seen == {outcome.crash.exchange}


def tell(outcome: Outcome, folder: Path, console: Console) -> None:
    """Print the summary."""
    console.print()
    console.print(_traffic(outcome))
    _tell_takeover(outcome, console)
    _tell_question(outcome, console)
    if outcome.load is not None:
        console.print(_latencies(outcome.load.stacks))
        for line in void_lines(outcome.load):
            console.print(f"  {line}", style="dim", markup=False, highlight=False)
    _tell_verdict(outcome, console)
    console.print(f"\nReport    {folder / 'report' / 'report.html'}")
    console.print(f"Load      {folder / 'load' / 'load.html'}")
    console.print(f"Captures  {folder / 'captures'}")
    for failure in failures(outcome):
        console.print(f"[bold red]Not as it should be:[/] {failure}")


def _traffic(outcome: Outcome) -> Table:
    table = Table(title="What was served", title_justify="left")
    table.add_column("")
    table.add_column("requests", justify="right")
    streams: list[Answered | Stream] = [*outcome.answers]
    streams += [outcome.crash] if outcome.crash else []
    streams += outcome.asked.streams if outcome.asked else []
    pairs = Counter((stream.assigned, stream.served) for stream in streams)
    for (assigned, served), count in sorted(pairs.items()):
        table.add_row(f"assigned {assigned}, served by {served}", str(count))
    table.add_section()
    shadows = Counter[str]()  # of all flows
    for line in outcome.books.get("ledger", {}).get("lines", ()):
        reason = f": {line['reason']}" if line["reason"] else ""
        shadows[f"shadows, load included: {line['state']}{reason}"] += line["count"]
    for state, count in shadows.items():
        table.add_row(state, str(count))
    return table


def _tell_takeover(outcome: Outcome, console: Console) -> None:
    crash = outcome.crash
    if crash is None or crash.takeover is None:
        return
    console.print(
        "\n[bold]One stream, two stacks.[/] The graph stack crashed after its fourth frame; "
        "the client got:"
    )
    for frame in crash.body.decode().split("\n\n"):
        if frame:
            _line(frame, console)
    console.print()


def _tell_question(outcome: Outcome, console: Console) -> None:
    asked = outcome.asked
    if asked is None or asked.gone_on is None:
        return
    console.print(
        "[bold]One question, two stacks.[/] The graph stack asked its user something; before the "
        "answer came, companion was rolled back:"
    )
    _tell_stream(asked.put, console)
    answer = msgspec.json.encode(asked.answer).decode()
    _line(f": rolled back, answered {answer}, gone on by {asked.gone_on.served}", console)
    _tell_stream(asked.gone_on, console)
    console.print()


def _tell_stream(stream: Stream, console: Console) -> None:
    """Print events, the pieces of a text as one."""
    for name, events in groupby(stream.events, itemgetter(0)):
        told = [data for _, data in events]
        if name == "text":
            told = [{"content": "".join(data["content"] for data in told)}]
        for data in told:
            line = f"event: {name}  data: {msgspec.json.encode(data).decode()}"
            _line(line, console, whole=name != "text")


def _line(text: str, console: Console, *, whole: bool = False) -> None:
    """Print what was on the wire, and comments; no more than fits on a line, or `whole`."""
    style = "bold yellow" if text.startswith(":") else "dim"
    if whole:
        console.print(Padding(Text(text, style, overflow="fold"), (0, 0, 0, 2)))
    else:
        console.print(Text(f"  {text}", style), no_wrap=True, overflow="ellipsis")


def _latencies(stacks: tuple[StackSummary, ...]) -> Table:
    table = Table(title="Under load, in milliseconds", title_justify="left")
    table.add_column("")
    table.add_column("stack")
    for name in ("P50", "P95", "P99"):
        table.add_column(name, justify="right")
    for metric, title in _SHOWN.items():
        for number, stack in enumerate(stacks):
            last = number == len(stacks) - 1
            title_once = "" if number else title
            table.add_row(title_once, stack.stack, *_cells(stack, metric), end_section=last)
    return table


def _cells(stack: StackSummary, metric: str) -> list[str]:
    found = next((one for one in stack.metrics if one.name == metric), None)
    if found is None or not found.percentiles:
        return ["–", "–", "–"]
    return [f"{point.value * 1_000:.1f}" for point in found.percentiles]


def _tell_verdict(outcome: Outcome, console: Console) -> None:
    report = outcome.report
    if report is None:
        return
    console.print(f"\nVerdict   [bold]{report.verdict.label}[/]")
    for reason in report.verdict.reasons:
        console.print(f"          {reason}", highlight=False)
    if report.clusters and not failures(outcome):
        console.print("          the planted crash, and nothing else", highlight=False)
