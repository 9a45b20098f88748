"""Dialects: how a flow's streams are read, and the wire of their normal form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path

from compare.input.files import read_text
from compare.streams.events import NAME, REASONING, TEXT, Payloads
from compare.streams.normal import Normaliser, NormalStream
from compare.streams.two_formats import CommonDialect, DialectNotConfigured
from contract.declarations import DeclarationRefused
from contract.flow import FlowSpec
from contract.grammar import Grammar, Step, many, maybe, one
from contract.records import RunRecord
from contract.wire import (
    EVERY,
    Dialect,
    EventDecoder,
    EventNames,
    RecordedWire,
    StepTable,
    TextPaths,
    TextTable,
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


def wire_of(
    dialect: Dialect, names: frozenset[str], grammar: Grammar | None = None
) -> RecordedWire:
    """Return the wire of streams in normal form in which these names were met.

    `grammar` is in force instead of the dialect's.
    """
    decoder = EventDecoder(dialect)
    text = _texts(decoder, "text", TEXT, names)
    normal = Dialect(
        framing="ndjson",
        event=EventNames(path=NAME, default=""),
        text=text,
        reasoning=_texts(decoder, "reasoning", REASONING, names),
        terminal=dialect.terminal,
        errors=dialect.errors,
    )
    growing = [name for name in text if decoder.text_paths("text", name)[1] == "cumulative"]
    return RecordedWire(normal, grammar or _grammar(dialect, names, growing))


def _texts(decoder: EventDecoder, track: str, key: str, names: frozenset[str]) -> TextTable:
    found = {name: decoder.text_paths(track, name) for name in sorted(names)}
    return {
        name: TextPaths(path=key, growth=growth) for name, (paths, growth) in found.items() if paths
    }


def _grammar(dialect: Dialect, names: frozenset[str], growing: list[str]) -> Grammar:
    if dialect.grammar is None:
        return Grammar(_undeclared(frozenset(dialect.terminal), names))
    steps = [step_of(step) for step in dialect.grammar.steps]
    # "*" stands for every name no other step has.
    named = frozenset().union(*(step.names for step in steps))
    others = frozenset(names - named)
    steps = [
        Step(step.names - {EVERY} | others, step.least, step.most) if EVERY in step.names else step
        for step in steps
    ]
    kept = growing if dialect.grammar.never_shrinks else []
    return Grammar(tuple(steps), growing=dict.fromkeys(kept, TEXT))


def _undeclared(terminal: frozenset[str], names: frozenset[str]) -> tuple[Step, ...]:
    """Without a grammar anything goes, and the terminal event comes last and once.

    Where there is none, an event is due at least.
    """
    if not terminal:
        return (Step(names, 1, None),)
    return many(*names - terminal), one(*terminal)


def step_of(step: StepTable) -> Step:
    """Return the step of a grammar that a step of the file is."""
    [(how, names)] = choices_of(step)
    return _STEPS[how](*([names] if isinstance(names, str) else names))


class RecordedDialect:
    """A dialect ready for use; a flow's has a grammar and structs of its own."""

    def __init__(
        self,
        dialect: Dialect,
        payloads: Payloads | None = None,
        grammar: Grammar | None = None,
    ) -> None:
        self.dialect = dialect
        self.normaliser = Normaliser(dialect, payloads)
        self._grammar = grammar

    @property
    def name(self) -> str:
        """What the dialect is called."""
        return self.dialect.name

    def captured(self, run: RunRecord) -> NormalStream:
        """Bring the stream of a captured run into normal form; raises `DialectNotConfigured`."""
        if run.dialect:
            raise DialectNotConfigured(run.dialect)
        return self.normaliser.captured(run)

    def wire(self, names: frozenset[str]) -> RecordedWire:
        """Return the wire of its streams in normal form, these names being met in them."""
        return wire_of(self.dialect, names, self._grammar)


def flow_dialect(flow: FlowSpec) -> RecordedDialect | CommonDialect:
    """Return how captured streams of a declared flow are read."""
    if flow.other_format is not None:
        return CommonDialect(flow.name, flow.dialect, flow.other_format.dialect)
    return RecordedDialect(flow.dialect)


def find_dialect(wanted: str, flows: Mapping[str, FlowSpec]) -> RecordedDialect:
    """Find a dialect by name or file: a flow's, a built-in one, else a file's.

    Raises `DeclarationRefused`, naming the nearest name where there is no such thing.
    """
    if wanted in flows:
        spec = flows[wanted]
        if spec.declared:
            return RecordedDialect(spec.dialect)
        return RecordedDialect(spec.dialect, Payloads(spec), spec.grammar)
    names = built_in()
    if wanted in names:
        return RecordedDialect(names[wanted])
    path = Path(wanted)
    if not path.is_file():
        known = sorted({*flows, *names})
        near = get_close_matches(wanted, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"built in: {', '.join(known)}"
        raise DeclarationRefused(wanted, "", f"no such dialect or file; {hint}")
    return RecordedDialect(read_dialect(path))


def read_dialect(path: Path) -> Dialect:
    """Read a file; raises `DeclarationRefused`."""
    return dialect_of(read_text(path), str(path), path.stem)
