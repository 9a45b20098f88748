"""Reading dialects: a built-in one by its name, a flow's own, or a file."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from compare.declared import read_text
from compare.dialects.normal import Normaliser
from compare.dialects.wires import wire_of
from compare.payloads import Payloads
from contract.declarations import DeclarationRefused
from contract.wire.dialect import (
    DialectFile,
    ErrorPaths,
    EventNames,
    TextPaths,
    built_in,
    dialect_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.flow import FlowSpec
    from contract.grammar import Grammar
    from contract.wire.dialect import PlainWire, TextField


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
