"""`cutover demo`: the whole story on this machine, no key needed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from contract.errors import CutoverError
from cutover.cli.terminal import in_words
from cutover.demo.messages import BUNDLED, read
from cutover.demo.story import Demonstration, Outcome, Wishes
from cutover.demo.summary import failures, tell

_ACTS = {
    "messages": "sending messages, 30 % to graph, everything shadowed",
    "takeover": "crashing the graph stack in the middle of an answer",
    "question": "asking a user on graph, going on on legacy",
    "load": "loading both stacks in turn",
    "shadows": "waiting for the last shadows",
    "report": "comparing what was captured",
}


def demo(
    messages: Annotated[Path, typer.Option(help="JSONL of {content} or {turns}.")] = BUNDLED,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder; what an earlier one wrote there goes.")
    ] = Path("build/demo"),
    seconds: Annotated[
        float, typer.Option(min=1, help="Length of one load run; there are four.")
    ] = 5.0,
    users: Annotated[int, typer.Option(min=1, help="Users under load.")] = 10,
    keep: Annotated[bool, typer.Option("--keep", help="Leave it running at the end.")] = False,  # noqa: FBT002 - a flag on the command line
) -> None:
    """Serve, mirror, crash, ask, load and compare: the whole story, on a simulated provider.

    With OPENAI_API_KEY set (and optionally OPENAI_BASE_URL) the real provider is asked instead.
    """
    console = Console()
    try:
        wishes = Wishes(out, read(messages), seconds, users)
        outcome = asyncio.run(_play(wishes, console, keep=keep))
    except (CutoverError, OSError) as error:
        typer.echo(f"cutover demo: {in_words(error)}", err=True)
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        return
    except asyncio.CancelledError:
        raise typer.Exit(128 + signal.SIGTERM) from None
    if failures(outcome):
        raise typer.Exit(1)


async def _play(wishes: Wishes, console: Console, *, keep: bool) -> Outcome:
    playing = asyncio.current_task()
    if playing is not None:
        # Without this a SIGTERM would leave the provider and the router behind.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
    with _progress(console) as progress:
        bars = dict(_bars(progress))

        def moved(act: str, share: float) -> None:
            progress.start_task(bars[act])
            progress.update(bars[act], completed=min(share, 1.0))

        async with Demonstration(wishes, moved) as story:
            console.print(f"The router is {story.outcome.url}, watch its /readyz.", highlight=False)
            await story.converse()
            await story.crash()
            await story.ask()
            await story.load()
            await story.settle()
            await story.compare()
            progress.stop()
            tell(story.outcome, wishes.folder, console)
            if keep:
                await _wait(story.outcome, console)
    return story.outcome


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<55}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        console=console,
    )


def _bars(progress: Progress) -> Iterator[tuple[str, TaskID]]:
    for act, text in _ACTS.items():
        yield act, progress.add_task(text, total=1.0, start=False)


async def _wait(outcome: Outcome, console: Console) -> None:
    console.print(
        f"\nStill running. Open [bold]{outcome.url}/docs[/] and [bold]{outcome.url}/readyz[/], "
        "edit cutover.toml and watch the stages change. Ctrl-C ends it."
    )
    await asyncio.Event().wait()
