"""Whether a template converts, with care or not, or stays; its text, and a proof's outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, TypeAlias

import msgspec
from jinja2 import Environment

from compare.layers import prompt_sources
from compare.layers.prompt_sources import Piece
from cutover.prompts.template import (
    Caution,
    StayReason,
    TemplateReading,
    ValuePath,
    encodable,
    read_template,
    reason,
)

Label: TypeAlias = Literal["converts", "converts with care", "stays"]
_BYTE_ORDER_MARK = "\ufeff"
_CARRIAGE_RETURN = "\r"


class JudgedTemplate(msgspec.Struct, frozen=True):
    """One template: `pieces` are all it writes, `text` their f-string, "" where it stays."""

    name: str
    label: Label
    pieces: tuple[Piece, ...]
    text: str
    paths: dict[str, ValuePath]
    reasons: tuple[StayReason, ...]
    cautions: tuple[Caution, ...]


class ProofCase(msgspec.Struct, frozen=True):
    """A prompt to prove: its templates in order, and the text it became.

    `paths` says where Jinja2 finds the value of each variable; `placeholders` name the messages
    that are passed to a chat.
    """

    name: str
    templates: tuple[str, ...]
    paths: dict[str, ValuePath]
    text: str
    chat: bool = False
    placeholders: tuple[str, ...] = ()


class DifferingValues(msgspec.Struct, frozen=True):
    """Values for which the two renderings differ, as Python writes them, and both renderings."""

    template: str
    values: dict[str, str]
    legacy: str
    graph: str


class PromptProof(msgspec.Struct, frozen=True):
    """On how many values both renderings were equal, or values on which they differ."""

    values: int
    counterexample: DifferingValues | None = None
    failed: str = ""

    @property
    def holds(self) -> bool:
        """Whether both renderings were equal wherever they were compared."""
        return self.counterexample is None and not self.failed


def judge(environment: Environment, name: str, encoding: str = "utf-8") -> JudgedTemplate:
    """Judge a template by its name; one that seems to convert is rendered once to check that."""
    found = read_template(environment, name)
    pieces, unencodable = encodable(found.pieces, encoding)
    reasons = found.reasons | unencodable
    if not reasons:
        reasons = _mismatch(environment, name, found)
    cautions = set() if reasons else found.cautions | _cautions(name, pieces)
    return JudgedTemplate(
        name,
        "stays" if reasons else "converts with care" if cautions else "converts",
        pieces,
        "" if reasons else f_string(pieces),
        found.paths,
        tuple(sorted(reasons)),
        tuple(sorted(cautions)),
    )


def f_string(pieces: Iterable[Piece]) -> str:
    """Write literal text and variables as an f-string template: braces are doubled."""
    return "".join(
        piece.text.replace("{", "{{").replace("}", "}}")
        if isinstance(piece, prompt_sources.Literal)
        else f"{{{piece.name}}}"
        for piece in pieces
        if not isinstance(piece, prompt_sources.Dynamic)
    )


def filled(pieces: Iterable[Piece], values: Mapping[str, object]) -> str:
    """Write pieces with values in the places of variables."""
    return "".join(
        piece.text if isinstance(piece, prompt_sources.Literal) else str(values[piece.name])
        for piece in pieces
        if not isinstance(piece, prompt_sources.Dynamic)
    )


class _Record(SimpleNamespace):
    """A value whose parts are both attributes and items, as Jinja2 reads them."""

    def __getitem__(self, key: str) -> object:
        return getattr(self, key)


def nested(paths: Mapping[str, ValuePath], values: Mapping[str, object]) -> dict[str, Any]:
    """Build what the team passes to Jinja2 from the values of the flat variables."""
    tree: dict[str | int, Any] = {}
    for name, path in paths.items():
        level = tree
        for step in path[:-1]:
            level = level.setdefault(step, {})
        level[path[-1]] = _Leaf(values[name])
    return {str(name): _built(branch) for name, branch in tree.items()}


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One value, as opposed to a branch."""

    value: object


def _built(branch: Any) -> object:
    if isinstance(branch, _Leaf):
        return branch.value
    parts = {step: _built(below) for step, below in branch.items()}
    if all(isinstance(step, int) for step in parts):
        return [parts.get(index) for index in range(max(parts) + 1)]
    return _Record(**{str(step): part for step, part in parts.items()})


def _mismatch(environment: Environment, name: str, found: TemplateReading) -> set[StayReason]:
    """Compare the pieces with one rendering that has a mark for each value."""
    marks = {variable: f"\ue000{variable}\ue001" for variable in found.paths}
    try:
        rendered = environment.get_template(name).render(nested(found.paths, marks))
    except Exception as error:  # noqa: BLE001 (a template that fails cannot be converted)
        return {reason(name, 1, "unproven", f"rendering fails: {type(error).__name__}: {error}")}
    if rendered == filled(found.pieces, marks):
        return set()
    return {reason(name, 1, "unproven", "Jinja2 renders another text than was read here")}


def _cautions(name: str, pieces: tuple[Piece, ...]) -> set[Caution]:
    literals = [piece for piece in pieces if isinstance(piece, prompt_sources.Literal)]
    found: set[Caution] = set()
    if literals and literals[0].text.startswith(_BYTE_ORDER_MARK):
        detail = "the model gets its byte order mark: do not read it as UTF-8-SIG"
        found.add(Caution(name, 1, "byte order mark", detail))
    first = next((piece for piece in literals if _CARRIAGE_RETURN in piece.text), None)
    if first is not None:
        detail = 'it holds carriage returns: read it with newline="", or they are lost'
        found.add(Caution(first.file, first.line, "carriage return", detail))
    if not pieces:
        found.add(Caution(name, 1, "empty", "it writes nothing"))
    return found
