"""`cutover demo`: the whole story on this machine, no key needed."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cutover.cli.terminal import refusals
from cutover.demo.client import BUNDLED, read_messages
from cutover.demo.story import Demonstration, DemoOutcome, DemoPlan
from cutover.demo.summary import failures, print_summary

_ACTS = {
    "messages": "sending messages, 30 % to graph, everything shadowed",
    "takeover": "crashing the graph stack in the middle of an answer",
    "question": "asking a user on graph, going on on legacy",
    "approval": "instructing a worker, and approving what is risky",
    "load": "loading both stacks in turn",
    "shadows": "waiting for the last shadows",
    "report": "comparing what was captured",
}


def demo(
    *,
    messages: Annotated[Path, typer.Option(help="JSONL of {content} or {turns}.")] = BUNDLED,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder; what an earlier one wrote there goes.")
    ] = Path("build/demo"),
    seconds: Annotated[
        float, typer.Option(min=1, help="Length of one load run; there are four.")
    ] = 5.0,
    users: Annotated[int, typer.Option(min=1, help="Users under load.")] = 10,
    keep: Annotated[bool, typer.Option("--keep", help="Leave it running at the end.")] = False,
) -> None:
    """Serve, mirror, crash, ask, approve, load and compare, all on a simulated provider.

    With OPENAI_API_KEY set (and optionally OPENAI_BASE_URL) the real provider is asked instead.
    """
    console = Console()
    try:
        with refusals(2):
            plan = DemoPlan(out, read_messages(messages), seconds, users)
            outcome = asyncio.run(_play(plan, console, keep=keep))
    except KeyboardInterrupt:
        return
    except asyncio.CancelledError:
        raise typer.Exit(128 + signal.SIGTERM) from None
    if failures(outcome):
        raise typer.Exit(1)


async def _play(plan: DemoPlan, console: Console, *, keep: bool) -> DemoOutcome:
    task = asyncio.current_task()
    if task is not None:
        # Without this SIGTERM would leave the provider and the router behind.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    progress = Progress(
        TextColumn("{task.description:<55}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        console=console,
    )
    bars = {act: progress.add_task(text, total=1.0, start=False) for act, text in _ACTS.items()}

    def show(act: str, share: float) -> None:
        progress.start_task(bars[act])
        progress.update(bars[act], completed=min(share, 1.0))

    async with Demonstration(plan, show) as story:
        # Not before: what cannot be started has no progress.
        with progress:
            url = story.outcome.url
            console.print(f"The router is {url}, watch its /readyz.", highlight=False)
            acts = (story.converse, story.crash, story.ask, story.approve, story.load, story.settle)
            for act in acts:
                await act()
            await story.compare()
            progress.stop()
            print_summary(story.outcome, plan.folder, console)
            if keep:
                console.print(
                    f"\nStill running. Open [bold]{url}/docs[/] and [bold]{url}/readyz[/], "
                    "edit cutover.toml and watch the stages change. Ctrl-C ends it."
                )
                await asyncio.Event().wait()
    return story.outcome
