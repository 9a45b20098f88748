"""`cutover judge`: which of two answers is better, by a person or by a model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn
from rich.text import Text

from compare.answers import DrawnAnswers, draw_answers
from compare.input.selection import Selection
from contract.errors import CutoverError
from cutover.cli.terminal import bar, print_written, refusals, tables
from cutover.flows import flows_of, settings_at
from cutover.judge.judgements import (
    PersonJudgement,
    add_judged,
    default_file,
    read_export,
    read_judged,
)
from cutover.judge.model import judged, open_judge
from cutover.judge.page import judge_page, readable
from cutover.reports import selection_at
from effects.files import write_whole
from evidence.preferences import (
    FEWEST_CHECKS,
    PERSON,
    AnswerPair,
    JudgedPair,
    preferences_text,
    self_check_text,
    shown,
    tally,
)
from loadtests.requests import FlowUnknown
from router.config.schema import Settings

REFUSED: Final = 2
NOTHING: Final = 3
INTERRUPTED: Final = 130
_LARGEST_SEED: Final = (1 << 31) - 1
_KEYS: Final[dict[str, Literal["a", "b", "tie", "skip", "quit"]]] = {
    "a": "a",
    "b": "b",
    "t": "tie",
    "tie": "tie",
    "s": "skip",
    "skip": "skip",
    "q": "quit",
    "quit": "quit",
}


class JudgesMixed(CutoverError):
    """Several ways to judge are chosen at once."""

    def __init__(self) -> None:
        super().__init__("one of --page, --import and --model, or none to judge in the terminal")


_Captures = Annotated[str, typer.Argument(help="A folder, file or fsspec URL of captures.")]
_Sample = Annotated[int, typer.Option(min=1, help="So many pairs at most, drawn by the seed.")]
_Seed = Annotated[int, typer.Option(min=0, max=_LARGEST_SEED, help="What the sample follows from.")]
_Flow = Annotated[str, typer.Option(help="Only this flow; default: all.")]
_Since = Annotated[str, typer.Option(help="Only what began from then on: a time, or 90m, 2h, 7d.")]
_Page = Annotated[
    Path | None, typer.Option(help="Write the pairs as one HTML page, to judge in a browser.")
]
_Import = Annotated[Path | None, typer.Option("--import", help="Read what such a page exported.")]
_Model = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Let this model judge, of those that are configured."),
]
_Out = Annotated[
    Path | None, typer.Option(help="The file of judgements; default: quality.json in CAPTURES.")
]
_Config = Annotated[Path | None, typer.Option(help="Flows and models; default: cutover.toml.")]


def judge(
    captures: _Captures,
    *,
    sample: _Sample = 50,
    seed: _Seed = 0,
    flow: _Flow = "",
    since: _Since = "",
    page: _Page = None,
    exported: _Import = None,
    model: _Model = None,
    out: _Out = None,
    config: _Config = None,
) -> None:
    """Ask which of two answers is better, and store what is preferred for the gate.

    Shows pairs of answers to one request as A and B, in an order that is drawn and hidden; equal
    answers are left out. Judgements are stored as they are made: the same command goes on where it
    stopped. Exit 0: done, or stopped by quit, 2: refused, 3: there is no pair to judge.
    """
    console = tables()
    try:
        with refusals(REFUSED):
            if sum(one is not None for one in (page, exported, model)) > 1:
                raise JudgesMixed
            file = default_file(captures) if out is None and page is None else out
            if exported is not None and file is not None:
                _print_result(add_judged(file, read_export(exported).judgements()), file, console)
                return
            settings = settings_at(config)
            selection = selection_at(since, "", "")
            itself = 0 if model is None else FEWEST_CHECKS
            drawn = _draw(captures, settings, flow, sample, seed, itself, selection)
            _print_drawn(drawn, console)
            if not drawn.pairs:
                raise typer.Exit(NOTHING)
            if page is not None:
                write_whole(page, judge_page(drawn.pairs, seed, captures).encode())
                print_written([page], console)
            elif file is not None:
                if model is None:
                    _ask(drawn.pairs, seed, file, console)
                else:
                    asyncio.run(ask_model(model, settings, drawn, file))
                _print_result(read_judged(file), file, console)
    except KeyboardInterrupt:
        console.print("interrupted: the same command goes on where it stopped")
        raise typer.Exit(INTERRUPTED) from None


def _draw(
    captures: str,
    settings: Settings,
    flow: str,
    sample: int,
    seed: int,
    itself: int,
    selection: Selection,
) -> DrawnAnswers:
    flows = flows_of(settings)
    if flow and flow not in flows:
        raise FlowUnknown(flow)
    wanted = {flow: flows[flow]} if flow else flows
    return draw_answers(captures, wanted, sample, seed, itself=itself, selection=selection)


def _ask(pairs: Sequence[AnswerPair], seed: int, file: Path, console: Console) -> None:
    """Ask a person for each pair that has no judgement of one; end with the input."""
    known = {one.exchange for one in read_judged(file) if one.judge == PERSON}
    for number, pair in enumerate(pairs, 1):
        if pair.exchange in known:
            continue
        _, a, b = shown(pair, seed)
        console.rule(f"{number} of {len(pairs)}", align="left")
        for title, text in (("Request", pair.request), ("A", a), ("B", b)):
            if text or title != "Request":
                console.print(Text(title, style="bold"))
                console.print(Text(readable(text)) if text else Text("no text", style="dim"))
                console.print()
        choice = _choice(console)
        if choice == "quit":
            return
        judgement = PersonJudgement(pair.exchange, pair.flow, pair.began, choice)
        add_judged(file, [judgement.judgement(seed)])


def _choice(console: Console) -> Literal["a", "b", "tie", "skip", "quit"]:
    while True:
        try:
            typed = typer.prompt("Which is better? a, b, tie, skip or quit")
        except typer.Abort:  # the end of the input, or Ctrl-C: what was judged is stored
            console.print()
            return "quit"
        found = _KEYS.get(str(typed).strip().lower())
        if found is not None:
            return found


async def ask_model(model_id: str, settings: Settings, drawn: DrawnAnswers, file: Path) -> None:
    """Let a model judge what it has not judged yet: against itself first."""
    known = {(one.exchange, one.itself) for one in read_judged(file) if one.judge == model_id}
    itself = [pair for pair in drawn.itself if (pair.exchange, True) not in known]
    pairs = [pair for pair in drawn.pairs if (pair.exchange, False) not in known]
    console = Console(stderr=True)
    async with open_judge(settings, os.environ, model_id) as judge_model:
        with bar(console, MofNCompleteColumn()) as progress:
            task = progress.add_task("judging", total=len(itself) + len(pairs))
            async for one in judged(judge_model, itself, pairs):
                add_judged(file, [one])
                progress.advance(task)


def _print_drawn(drawn: DrawnAnswers, console: Console) -> None:
    console.print(
        f"{len(drawn.pairs):,} pairs drawn of {drawn.offered:,} with unlike answers",
        highlight=False,
    )
    for reason, count in sorted(drawn.left_out.items()):
        console.print(Text(readable(f"  left out: {count:,} {reason}"), style="dim"))


def _print_result(stored: Iterable[JudgedPair], file: Path, console: Console) -> None:
    for one in tally(stored):
        console.print(Text(readable(f"{one.flow}: {preferences_text(one)}"), style="bold"))
        counts = f"  {one.ties:,} ties, {one.skipped:,} skipped"
        if one.itself is not None:
            counts += f", {one.position:,} followed the position, {one.invalid:,} invalid"
            console.print(Text(counts))
            console.print(Text(readable(f"  {self_check_text(one.itself)}")))
        else:
            console.print(Text(counts))
    print_written([file], console)
