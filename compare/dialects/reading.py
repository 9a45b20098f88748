"""Reading dialects: a built-in one by its name, a flow's own, or a file."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from compare.declared import DeclarationRefused, converted, parsed, read_text
from compare.dialects.file import DialectFile, Errors, Naming, TextPlace
from compare.dialects.normal import Normaliser
from compare.dialects.wires import choices_of, wire_of
from compare.paths import ANY_DEPTH, path_fault, path_of
from compare.payloads import Payloads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compare.dialects.file import Places, Tools
    from contract.dialect import PlainWire, TextField
    from contract.flow import FlowSpec
    from contract.grammar import Grammar

_HERE = Path(__file__).parent
_SUFFIX = ".toml"


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


def built_in() -> tuple[str, ...]:
    """List the dialects that come along."""
    return tuple(sorted(path.stem for path in _HERE.glob(f"*{_SUFFIX}")))


def spoken(wanted: str, flows: Mapping[str, FlowSpec]) -> Spoken:
    """Find a dialect by name or file: a flow's, a built-in one, else a file's.

    Raises `DeclarationRefused`, naming the nearest name where there is no such thing.
    """
    if wanted in flows:
        spec = flows[wanted]
        return Spoken(file_of(spec), Payloads(spec), spec.grammar)
    names = built_in()
    path = _HERE / f"{wanted}{_SUFFIX}" if wanted in names else Path(wanted)
    if not path.is_file():
        known = sorted({*flows, *names})
        near = get_close_matches(wanted, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"built in: {', '.join(known)}"
        raise DeclarationRefused(wanted, "", f"no such dialect or file; {hint}")
    return Spoken(read_dialect(path))


def read_dialect(path: Path) -> DialectFile:
    """Read a file; raises `DeclarationRefused`."""
    return dialect_of(read_text(path), str(path), path.stem)


def dialect_of(text: str, where: str, name: str) -> DialectFile:
    """Read the text of a file called `where`; `name` if it has none of its own."""
    file = converted(parsed(text, where), DialectFile, where)
    for key, why in _unsound(file):
        raise DeclarationRefused(where, key, why)
    return msgspec.structs.replace(file, name=file.name or name)


def _unsound(file: DialectFile) -> Iterator[tuple[str, str]]:
    """List what cannot be meant."""
    for key, places in _paths(file):
        yield from ((key, why) for why in _astray(places))
    steps = file.grammar.steps if file.grammar else ()
    for index, step in enumerate(steps):
        if len(choices_of(step)) != 1:
            yield f"grammar.steps[{index}]", "one of one, maybe, some, many is due"
    if file.grammar is not None and not steps:
        yield "grammar.steps", "a step is due"
    if file.payload == "text" and file.event.path:
        yield "event.path", "text has no paths: events are named by the SSE field alone"


def _astray(places: Places) -> Iterator[str]:
    """Say of paths why they are none."""
    held = (places,) if isinstance(places, str) else places
    if not held:
        yield "a path is due, and the list is empty"
    for path in held:
        why = path_fault(path)
        if why:
            yield why
        elif ANY_DEPTH in path_of(path):
            yield f"{path!r}: '{ANY_DEPTH}' is for rules; a dialect's path names every step"


def _paths(file: DialectFile) -> Iterator[tuple[str, Places]]:
    if file.event.path is not None:
        yield "event.path", file.event.path
    for table in ("text", "reasoning"):
        for name, place in getattr(file, table).items():
            yield f"{table}.{name}", place.path if isinstance(place, TextPlace) else place
    yield "errors.code", file.errors.code
    yield from _tool_paths(file.tools) if file.tools else ()
    for name, places in file.parts.items():
        yield f"parts.{name}", places
    for name, paths in file.ignore.items():
        yield f"ignore.{name}", paths
    for name, kinds in file.required.items():
        for path in kinds:
            yield f"required.{name}", path


def _tool_paths(tools: Tools) -> Iterator[tuple[str, str]]:
    if tools.at:
        yield "tools.at", tools.at
    for name in ("index", "id", "name", "arguments"):
        yield f"tools.{name}", getattr(tools, name)


def file_of(spec: FlowSpec) -> DialectFile:
    """Write down a flow's own dialect; its grammar it has itself."""
    dialect = spec.dialect
    return DialectFile(
        name=spec.name,
        framing=dialect.framing,
        event=Naming(path=None if dialect.name is None else ".".join(dialect.name), default=""),
        text=_texts(dialect.text),
        reasoning=_texts(dialect.reasoning),
        terminal=tuple(sorted(dialect.terminal)),
        errors=Errors(events=tuple(sorted(dialect.failures)), code=".".join(dialect.code)),
    )


def _texts(fields: Mapping[str, TextField]) -> dict[str, str | tuple[str, ...] | TextPlace]:
    return {
        name: TextPlace(path=".".join(field.path), growth=field.growth)
        for name, field in fields.items()
    }
