"""Judging: whether a template converts, with care or not, or stays; and into what text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from compare.layers import prompt_sources
from compare.layers.prompt_sources import Piece
from cutover.prompts.reasons import Care, Reach, Reason, reason
from cutover.prompts.unrolling import Unroller

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jinja2 import Environment, Template, nodes

    from cutover.prompts.environment import Prompting
    from cutover.prompts.templates import Unrolled

Label: TypeAlias = Literal["converts", "converts with care", "stays"]
_MARK = "\ufeff"
_CR = "\r"


class Judged(msgspec.Struct, frozen=True):
    """One template: `pieces` are all it writes, `text` the f-string of them, "" where it stays."""

    name: str
    label: Label
    pieces: tuple[Piece, ...]
    text: str
    variables: tuple[str, ...]
    reasons: tuple[Reason, ...]
    cares: tuple[Care, ...]
    reaches: tuple[Reach, ...]


def judge(made: Prompting, name: str) -> Judged:
    """Judge a template by its name; nothing is rendered that was not found harmless before."""
    found = Unroller(made).unroll(name)
    pieces, unwritable = encodable(found.pieces, made.encoding)
    reasons = {*found.reasons, *unwritable}
    if not reasons:
        reasons |= _unlike(made, name, found)
    cares = set() if reasons else found.cares | _cares(name, found.pieces)
    return Judged(
        name,
        "stays" if reasons else "converts with care" if cares else "converts",
        pieces,
        "" if reasons else f_string(pieces),
        variables_of(pieces),
        tuple(sorted(reasons)),
        tuple(sorted(cares)),
        tuple(sorted(found.reaches)),
    )


def encodable(
    pieces: Iterable[Piece], encoding: str
) -> tuple[tuple[Piece, ...], tuple[Reason, ...]]:
    """Take out what a file of this encoding, or a map, cannot hold; give why."""
    kept: list[Piece] = []
    reasons: list[Reason] = []
    for piece in pieces:
        lacking = _lacking(piece, encoding)
        kept.append(
            prompt_sources.Dynamic("encoding", piece.file, piece.line) if lacking else piece
        )
        if lacking:
            said = f"it writes what {lacking} has no letters for"
            reasons.append(reason(piece.file, piece.line, "encoding", said))
    return tuple(kept), tuple(reasons)


def _lacking(piece: Piece, encoding: str) -> str:
    """Name the first encoding that cannot hold a piece; maps are UTF-8, whatever prompts are."""
    if not isinstance(piece, prompt_sources.Literal):
        return ""
    for name in (encoding, "utf-8"):
        try:
            piece.text.encode(name)
        except UnicodeEncodeError:
            return name
    return ""


def f_string(pieces: Iterable[Piece]) -> str:
    """Write pieces as the text of an f-string PromptTemplate: braces are doubled."""
    return "".join(map(_written, pieces))


def _written(piece: Piece) -> str:
    match piece:
        case prompt_sources.Literal(text=text):
            return text.replace("{", "{{").replace("}", "}}")
        case prompt_sources.Variable(name=name):
            return f"{{{name}}}"
        case prompt_sources.Dynamic(what=what):
            message = f"{what} cannot be written"
            raise ValueError(message)


def filled(pieces: Iterable[Piece], values: Mapping[str, object]) -> str:
    """Put values in the places of variables."""
    return "".join(
        piece.text if isinstance(piece, prompt_sources.Literal) else str(values[piece.name])
        for piece in pieces
        if not isinstance(piece, prompt_sources.Dynamic)
    )


def variables_of(pieces: Iterable[Piece]) -> tuple[str, ...]:
    """Name the variables, each once, in order."""
    names = (piece.name for piece in pieces if isinstance(piece, prompt_sources.Variable))
    return tuple(dict.fromkeys(names))


def _unlike(made: Prompting, name: str, found: Unrolled) -> set[Reason]:
    """Hold what was unrolled against what Jinja2 renders, once: no reading is above mistakes."""
    marked = {variable: f"\ue000{variable}\ue001" for variable in variables_of(found.pieces)}
    try:
        rendered = _compiled(made.environment, name, found.own).render(marked)
    except Exception as error:  # noqa: BLE001 (whatever a template raises, it cannot be converted)
        return {reason(name, 1, "unproven", f"rendering fails: {type(error).__name__}: {error}")}
    if rendered == filled(found.pieces, marked):
        return set()
    return {reason(name, 1, "unproven", "Jinja2 renders it otherwise than it was read here")}


def _compiled(environment: Environment, name: str, own: nodes.Template | None) -> Template:
    """Compile what is parsed already."""
    if own is None:
        return environment.get_template(name)
    code = environment.compile(own, name)
    made: Template = environment.template_class.from_code(
        environment, code, environment.make_globals(None)
    )
    return made


def _cares(name: str, pieces: tuple[Piece, ...]) -> set[Care]:
    literals = [piece for piece in pieces if isinstance(piece, prompt_sources.Literal)]
    cares: set[Care] = set()
    if literals and literals[0].text.startswith(_MARK):
        said = "it begins with a byte order mark, which the model gets: do not read it as UTF-8-SIG"
        cares.add(Care(name, 1, "byte order mark", said))
    first = next((piece for piece in literals if _CR in piece.text), None)
    if first is not None:
        said = 'it holds carriage returns: read it with newline="", or they are lost'
        cares.add(Care(first.file, first.line, "carriage return", said))
    if not pieces:
        cares.add(Care(name, 1, "empty", "it writes nothing"))
    return cares
