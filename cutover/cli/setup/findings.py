"""What was recognised in an answer, and what each step would give, as `init` and `doctor` print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.markup import escape

from contract.errors import visible
from cutover.probe import NoAnswer
from cutover.recognition import NoStream, Recognised
from router.config.capabilities import Rung

COLOURS = {"yes": "green", "no": "yellow", "off": "dim"}


def format_of(found: Recognised) -> str:
    """Name the format of a stream."""
    return found.name or "a format of its own"


def lines_of(found: Recognised | NoStream | NoAnswer) -> Iterator[str]:
    """Yield what is known of one service, with colours: evidence and doubts, or what to do."""
    match found:
        case Recognised():
            yield from (f"  {_shown(line)}" for line in found.evidence)
            yield from (f"  [yellow]?[/] {_shown(line)}" for line in found.doubts)
        case NoAnswer():
            yield f"  {_shown(found.advice)}"
        case NoStream():
            if found.shown:
                yield f"  it says: {_shown(found.shown)}"
            yield f"  {_shown(found.advice)}"


def headline(found: Recognised | NoStream | NoAnswer) -> str:
    """Name what a service answered, with its colour."""
    match found:
        case Recognised():
            return f"[green]{escape(format_of(found))}[/]"
        case NoAnswer():
            return f"[red]no answer:[/] {_shown(found.why)}"
        case NoStream():
            return f"[red]no stream:[/] {_shown(found.what)}"


def rung_lines(rungs: Sequence[Rung]) -> Iterator[str]:
    """Yield what each step gives, and below it what it still takes, with colours."""
    for rung in rungs:
        answer = rung.gives.answer
        colour = COLOURS[answer]
        yield f"  {rung.name:<8} [{colour}]{answer:<3}[/] {_shown(rung.gives.why)}"
        needs = f"takes {', '.join(rung.needs)}" if rung.needs else "in force"
        yield f"  {'':<12} [dim]{_shown(needs)}[/]"


def _shown(text: str) -> str:
    return escape(visible(text))
