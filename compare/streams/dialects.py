"""Wires: what the layers have to know of streams in normal form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path

from compare.input.files import read_text
from compare.streams.normal import FAULT, NAME, REASONING, TEXT, Normaliser
from compare.streams.payloads import Payloads
from contract.declarations import DeclarationRefused
from contract.flow import FlowSpec
from contract.grammar import Grammar, Step, many, maybe, one
from contract.wire.dialect import (
    EVERY,
    Dialect,
    DialectFile,
    ErrorPaths,
    EventNames,
    Growth,
    PlainWire,
    StepTable,
    TextField,
    TextPaths,
    built_in,
    choices_of,
    dialect_of,
)

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


class Spoken:
    """A dialect ready for use; a flow's has a grammar and structs of its own."""

    def __init__(
        self,
        file: DialectFile,
        payloads: Payloads | None = None,
        grammar: Grammar | None = None,
    ) -> None:
        self.file = file
        self.normaliser = Normaliser(file, payloads)
        self._grammar = grammar

    @property
    def name(self) -> str:
        """What the dialect is called."""
        return self.file.name

    def wire(self, names: frozenset[str]) -> PlainWire:
        """Give the wire of its streams in normal form, these names being met in them."""
        return wire_of(self.file, names, self._grammar)


def spoken(wanted: str, flows: Mapping[str, FlowSpec]) -> Spoken:
    """Find a dialect by name or file: a flow's, a built-in one, else a file's.

    Raises `DeclarationRefused`, naming the nearest name where there is no such thing.
    """
    if wanted in flows:
        spec = flows[wanted]
        if spec.dialect.file is not None:
            return Spoken(spec.dialect.file)
        return Spoken(file_of(spec), Payloads(spec), spec.grammar)
    names = built_in()
    if wanted in names:
        return Spoken(names[wanted])
    path = Path(wanted)
    if not path.is_file():
        known = sorted({*flows, *names})
        near = get_close_matches(wanted, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"built in: {', '.join(known)}"
        raise DeclarationRefused(wanted, "", f"no such dialect or file; {hint}")
    return Spoken(read_dialect(path))


def read_dialect(path: Path) -> DialectFile:
    """Read a file; raises `DeclarationRefused`."""
    return dialect_of(read_text(path), str(path), path.stem)


def file_of(spec: FlowSpec) -> DialectFile:
    """Write down a flow's own dialect; its grammar it has itself."""
    dialect = spec.dialect
    return DialectFile(
        name=spec.name,
        framing=dialect.framing,
        event=EventNames(path=None if dialect.name is None else ".".join(dialect.name), default=""),
        text=_texts(dialect.text),
        reasoning=_texts(dialect.reasoning),
        terminal=tuple(sorted(dialect.terminal)),
        errors=ErrorPaths(events=tuple(sorted(dialect.failures)), code=".".join(dialect.code)),
    )


def _texts(fields: Mapping[str, TextField]) -> dict[str, str | tuple[str, ...] | TextPaths]:
    return {
        name: TextPaths(path=".".join(field.path), growth=field.growth)
        for name, field in fields.items()
    }
