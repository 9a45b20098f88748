"""The report on a folder of prompts, as JSON and on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from rich.console import Console
from rich.markup import escape

from contract.errors import visible
from cutover.prompts.examination import ExaminedPrompt
from cutover.prompts.judgement import DifferingValues, Label, PromptProof
from cutover.prompts.template import Caution, StayReason

Fate: TypeAlias = Literal["written", "unchanged", "not written", "not requested"]
MISSING_NOTE = (
    "Jinja2 writes nothing for a variable that is not passed, PromptTemplate raises KeyError: "
    "pass every variable"
)
_COLOURS: Mapping[Label, str] = {
    "converts": "green",
    "converts with care": "yellow",
    "stays": "red",
}
_COUNTED: Mapping[Label, str] = {
    "converts": "convert",
    "converts with care": "with care",
    "stays": "stay",
}


class PromptEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt: a file, or a chat of several."""

    name: str
    target: str
    label: Label
    variables: tuple[str, ...]
    reasons: tuple[StayReason, ...]
    cautions: tuple[Caution, ...]
    proof: PromptProof | None = None
    jinja2_us: float | None = None
    fate: Fate = "not requested"


class PromptReport(msgspec.Struct, frozen=True, kw_only=True):
    """All prompts of a folder; `notes` hold for every one."""

    v: int = 2
    folder: str
    prompts: tuple[PromptEntry, ...]
    notes: tuple[str, ...] = ()


def report_on(
    folder: Path,
    prompts: tuple[ExaminedPrompt, ...],
    written: Mapping[str, bool] | None = None,
    *,
    silent: bool,
) -> PromptReport:
    """Summarise examined prompts; `written` is what `write_converted` returned, if it ran."""
    return PromptReport(
        folder=str(folder),
        prompts=tuple(_entry(prompt, written) for prompt in prompts),
        notes=(MISSING_NOTE,) if silent else (),
    )


def _entry(prompt: ExaminedPrompt, written: Mapping[str, bool] | None) -> PromptEntry:
    fate: Fate = "not requested"
    if written is not None:
        fates: Mapping[bool | None, Fate] = {
            True: "written",
            False: "unchanged",
            None: "not written",
        }
        fate = fates[written.get(prompt.source.name)]
    parts = prompt.templates
    return PromptEntry(
        name=prompt.source.name,
        target=prompt.source.target,
        label=prompt.label,
        variables=tuple(dict.fromkeys(name for part in parts for name in part.paths)),
        reasons=tuple(why for part in parts for why in part.reasons),
        cautions=tuple(caution for part in parts for caution in part.cautions),
        proof=prompt.proof,
        jinja2_us=prompt.jinja2_us,
        fate=fate,
    )


def print_report(report: PromptReport, console: Console) -> None:
    """Print each prompt with its reasons, then the counts."""
    for entry in report.prompts:
        _print_entry(entry, console)
    counts = ", ".join(
        f"{sum(entry.label == label for entry in report.prompts)} {_COUNTED[label]}"
        for label in _COLOURS
    )
    console.print(f"{len(report.prompts)} prompts: {counts}", highlight=False)
    proofs = [entry.proof for entry in report.prompts if entry.proof is not None]
    if values := sum(proof.values for proof in proofs):
        line = f"{len(proofs)} rendered both ways, on {values:,} sets of values"
        console.print(line, highlight=False)
    for note in report.notes:
        console.print(f"[dim]note: {escape(note)}[/]", highlight=False, soft_wrap=True)


def _print_entry(entry: PromptEntry, console: Console) -> None:
    arrow = f" → {entry.target}" if entry.label != "stays" else ""
    fate = f" ({entry.fate})" if entry.fate != "not requested" else ""
    head = escape(visible(f"{entry.name}{arrow}{fate}"))
    console.print(f"[{_COLOURS[entry.label]}]{entry.label}[/] {head}", highlight=False)
    lines = [f"{why.file}:{why.line}: {why.detail}: {why.todo}" for why in entry.reasons]
    lines += [f"{care.file}:{care.line}: {care.detail}" for care in entry.cautions]
    if entry.jinja2_us is not None:
        cost = f"{entry.jinja2_us:,.0f} µs a call"
        lines.append(f'PromptTemplate(…, template_format="jinja2") renders it equally: {cost}')
    if entry.proof is not None:
        lines += [f"not proved: {entry.proof.failed}"] if entry.proof.failed else []
        lines += _difference(entry.proof.counterexample)
    for line in lines:
        console.print(f"  {escape(visible(line))}", highlight=False, soft_wrap=True)


def _difference(found: DifferingValues | None) -> list[str]:
    if found is None:
        return []
    values = ", ".join(f"{name} = {value}" for name, value in found.values.items())
    return [
        f"{found.template} differs for {values}",
        f"  Jinja2:         {found.legacy}",
        f"  PromptTemplate: {found.graph}",
    ]
