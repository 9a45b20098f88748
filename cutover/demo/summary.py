"""The summary that a demonstration prints at its end."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from compare.report.document import ClusterReport
from cutover.demo.client import APPROVER, TEMPORARY, DemoStream
from cutover.demo.story import DemoOutcome
from loadtests.report import StackSummary, void_lines

_SHOWN = {
    "ttfe": "first frame",
    "ttft": "first text",
    "ttle": "last frame",
}


def failures(outcome: DemoOutcome) -> list[str]:
    """Return what failed; empty when the demonstration succeeded."""
    found: list[str] = []
    broken = sum(not answer.complete for answer in outcome.answers)
    if broken:
        found.append(f"{broken} of {len(outcome.answers)} answers were not complete")
    crash = outcome.crash
    if crash is None or not crash.complete or not crash.takeover:
        found.append("the planted crash was not taken over")
    if not _continued(outcome):
        found.append("the question to the user was not gone on from on the other stack")
    if not _approved(outcome):
        found.append("the files were not deleted once that was approved, and not before")
    found += [
        f"a difference that was not planted: {cluster.title}"
        for cluster in (outcome.report.clusters if outcome.report else ())
        if not _planted(cluster, outcome)
    ]
    if outcome.report is None or not outcome.report.counts.pairs:
        found.append("nothing was compared")
    return found


def _continued(outcome: DemoOutcome) -> bool:
    """Whether legacy continued after the question; a real model need not ask one."""
    question = outcome.question
    if question is None or question.continued is None:
        return question is not None and not outcome.simulated
    stacks = question.first.served, question.continued.served
    ends = question.first.status, question.continued.status
    return (stacks, ends) == (("graph", "legacy"), ("suspended", "completed"))


def _approved(outcome: DemoOutcome) -> bool:
    """Whether the logs, and nothing else, went after the approval, and none before it."""
    approval = outcome.approval
    if approval is None:
        return False
    rest = tuple(name for name in TEMPORARY if not name.endswith(".log"))
    ends = approval.first.status, approval.continued.status
    files = approval.before, approval.after
    return (ends, files) == (("approval_required", "completed"), (tuple(sorted(TEMPORARY)), rest))


def _planted(cluster: ClusterReport, outcome: DemoOutcome) -> bool:
    """Whether a difference is the planted crash, and nothing but it."""
    seen = {exemplar.exchange for exemplar in cluster.exemplars}
    return cluster.exchanges == 1 and outcome.crash is not None and seen == {outcome.crash.exchange}


def print_summary(outcome: DemoOutcome, folder: Path, console: Console) -> None:
    """Print the summary."""
    console.print()
    console.print(_traffic(outcome))
    _print_takeover(outcome, console)
    _print_question(outcome, console)
    _print_approval(outcome, console)
    if outcome.load is not None:
        console.print(_latencies(outcome.load.stacks))
        for line in void_lines(outcome.load):
            console.print(f"  {line}", style="dim", markup=False, highlight=False)
    _print_verdict(outcome, console)
    console.print(f"\nReport    {folder / 'report' / 'report.html'}")
    console.print(f"Load      {folder / 'load' / 'load.html'}")
    console.print(f"Captures  {folder / 'captures'}")
    for failure in failures(outcome):
        console.print(f"[bold red]Not as it should be:[/] {failure}")


def _traffic(outcome: DemoOutcome) -> Table:
    table = Table(title="What was served", title_justify="left")
    table.add_column("")
    table.add_column("requests", justify="right")
    streams = [*outcome.answers]
    streams += [outcome.crash] if outcome.crash else []
    streams += outcome.question.streams if outcome.question else []
    streams += [outcome.approval.first, outcome.approval.continued] if outcome.approval else []
    pairs = Counter((stream.assigned, stream.served) for stream in streams)
    for (assigned, served), count in sorted(pairs.items()):
        table.add_row(f"assigned {assigned}, served by {served}", str(count))
    table.add_section()
    shadows = Counter[str]()  # of all flows
    for line in outcome.readiness.get("ledger", {}).get("lines", ()):
        reason = f": {line['reason']}" if line["reason"] else ""
        shadows[f"shadows, load included: {line['state']}{reason}"] += line["count"]
    for state, count in shadows.items():
        table.add_row(state, str(count))
    return table


def _print_takeover(outcome: DemoOutcome, console: Console) -> None:
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


def _print_question(outcome: DemoOutcome, console: Console) -> None:
    question = outcome.question
    if question is None or question.continued is None:
        return
    console.print(
        "[bold]One question, two stacks.[/] The graph stack asked its user something; before the "
        "answer came, companion was rolled back:"
    )
    _print_stream(question.first, console)
    answer = msgspec.json.encode(question.answer).decode()
    _line(f": rolled back, answered {answer}, gone on by {question.continued.served}", console)
    _print_stream(question.continued, console)
    console.print()


def _print_approval(outcome: DemoOutcome, console: Console) -> None:
    approval = outcome.approval
    if approval is None:
        return
    console.print(
        "[bold]One instruction, one approval.[/] A worker was told to delete files; what is risky "
        "waits for a person:"
    )
    _print_stream(approval.first, console)
    waited = f"{len(approval.before)} files are there, approved by {APPROVER}"
    _line(f": {waited}, then {len(approval.after)} is left", console)
    _print_stream(approval.continued, console)
    console.print()


def _print_stream(stream: DemoStream, console: Console) -> None:
    """Print events, adjacent pieces of text as one."""
    for name, events in groupby(stream.events, itemgetter(0)):
        rows = [data for _, data in events]
        if name == "text":
            rows = [{"content": "".join(data["content"] for data in rows)}]
        for data in rows:
            line = f"event: {name}  data: {msgspec.json.encode(data).decode()}"
            _line(line, console, whole=name != "text")


def _line(text: str, console: Console, *, whole: bool = False) -> None:
    """Print a frame or a comment: `whole`, or what fits on a line."""
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


def _print_verdict(outcome: DemoOutcome, console: Console) -> None:
    report = outcome.report
    if report is None:
        return
    console.print(f"\nVerdict   [bold]{report.verdict.label}[/]")
    for reason in report.verdict.reasons:
        console.print(f"          {reason}", highlight=False)
    if report.clusters and not failures(outcome):
        console.print("          the planted crash, and nothing else", highlight=False)
