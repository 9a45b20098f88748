"""What is found of a folder of prompts, on a terminal: reasons first, each where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from compare.report.formats import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from cutover.prompts.case import Counterexample
    from cutover.prompts.judging import Label
    from cutover.prompts.report import Entry, PromptReport

_COLOURS: Mapping[Label, str] = {
    "converts": "green",
    "converts with care": "yellow",
    "stays": "red",
}


def tell(report: PromptReport, console: Console) -> None:
    """Print a report."""
    for entry in report.prompts:
        _entry(entry, console)
    said = ", ".join(f"{report.count(label)} {_plural(label)}" for label in _COLOURS)
    console.print(f"{len(report.prompts)} prompts: {said}", highlight=False)
    if report.proved:
        tried = sum(entry.proof is not None for entry in report.prompts)
        said = f"{tried} rendered both ways, on {report.proved:,} drawings of values"
        console.print(said, highlight=False)
    for note in report.notes:
        console.print(f"[dim]note: {escape(note)}[/]", highlight=False, soft_wrap=True)


def _plural(label: Label) -> str:
    return {"converts": "convert", "converts with care": "with care", "stays": "stay"}[label]


def _entry(entry: Entry, console: Console) -> None:
    arrow = f" → {entry.target}" if entry.label != "stays" else ""
    fate = f" ({entry.fate})" if entry.fate != "not asked for" else ""
    head = escape(visible(f"{entry.name}{arrow}{fate}"))
    console.print(f"[{_COLOURS[entry.label]}]{entry.label}[/] {head}", highlight=False)
    for why in entry.reasons:
        _line(console, f"{why.file}:{why.line}: {why.said}: {why.todo}")
    for care in entry.cares:
        _line(console, f"{care.file}:{care.line}: {care.said}")
    for reach in entry.reaches:
        _line(console, f"{reach.file}:{reach.line}: {reach.said}")
    if entry.proof is not None and entry.proof.failed:
        _line(console, f"not proved: {entry.proof.failed}")
    if entry.proof is not None and entry.proof.counterexample is not None:
        _counterexample(entry.proof.counterexample, console)


def _counterexample(found: Counterexample, console: Console) -> None:
    values = ", ".join(f"{name} = {value}" for name, value in found.values.items())
    _line(console, f"{found.template} differs for {values}")
    _line(console, f"  Jinja2:         {found.legacy}")
    _line(console, f"  PromptTemplate: {found.graph}")


def _line(console: Console, said: str) -> None:
    console.print(f"  {escape(visible(said))}", highlight=False, soft_wrap=True)
