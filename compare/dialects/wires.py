"""Wires: what the layers have to know of streams in normal form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compare.dialects.normal import FAULT, NAME, REASONING, TEXT
from contract.grammar import Grammar, Step, many, maybe, one
from contract.wire.dialect import (
    EVERY,
    Dialect,
    PlainWire,
    StepTable,
    TextField,
    TextPaths,
    choices_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from contract.wire.dialect import DialectFile, Growth

_STEPS: Mapping[str, Callable[..., Step]] = {
    "one": one,
    "maybe": maybe,
    "some": lambda *names: Step(frozenset(names), 1, None),
    "many": many,
}


def wire_of(file: DialectFile, names: frozenset[str], grammar: Grammar | None = None) -> PlainWire:
    """Give the wire of streams in normal form in which these names were met.

    `grammar` is in force instead of the file's.
    """
    text = _fields(file, file.text or _whole_payload(file), TEXT, names)
    dialect = Dialect(
        framing="ndjson",
        name=(NAME,),
        text=text,
        reasoning=_fields(file, file.reasoning, REASONING, names),
        terminal=frozenset(file.terminal),
        failures=frozenset(file.errors.events),
        fault=FAULT,
    )
    return PlainWire(dialect, grammar or _grammar(file, names, text))


def _whole_payload(file: DialectFile) -> Mapping[str, str]:
    return {EVERY: ""} if file.payload == "text" else {}


def _fields(
    file: DialectFile,
    table: Mapping[str, str | tuple[str, ...] | TextPaths],
    key: str,
    names: frozenset[str],
) -> dict[str, TextField]:
    fields: dict[str, TextField] = {}
    for name in sorted(names):
        place = table.get(name, table.get(EVERY))
        if place is not None:
            growth: Growth = place.growth if isinstance(place, TextPaths) else file.growth
            fields[name] = TextField((key,), growth)
    return fields


def _grammar(file: DialectFile, names: frozenset[str], text: Mapping[str, TextField]) -> Grammar:
    if file.grammar is None:
        return Grammar(_undeclared(frozenset(file.terminal), names))
    steps = [step_of(step) for step in file.grammar.steps]
    # "*" stands for every name no other step has.
    named = frozenset().union(*(step.names for step in steps))
    others = frozenset(names - named)
    steps = [
        Step(step.names - {EVERY} | others, step.least, step.most) if EVERY in step.names else step
        for step in steps
    ]
    growing = [name for name, field in text.items() if field.growth == "cumulative"]
    kept = growing if file.grammar.never_shrinks else []
    return Grammar(tuple(steps), growing=dict.fromkeys(kept, TEXT))


def _undeclared(terminal: frozenset[str], names: frozenset[str]) -> tuple[Step, ...]:
    """Without a grammar anything goes, and the terminal event comes last and once."""
    others = (many(*names - terminal),)
    return (*others, one(*terminal)) if terminal else others


def step_of(step: StepTable) -> Step:
    """Give the place in a grammar that a step of the file is."""
    [(how, names)] = choices_of(step)
    return _STEPS[how](*([names] if isinstance(names, str) else names))
