"""Sources of prompts: the template whose pieces a message is made of, and where two part.

`cutover prompts` writes the map of pieces (`prompts.map.json`); comparisons read it and no code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, TypeAlias, assert_never

import msgspec

from compare.findings import PromptSource, first_difference
from compare.input.files import read_text
from contract.declarations import DeclarationRefused

VERSION = 1


class Literal(msgspec.Struct, frozen=True, tag="literal", tag_field="is"):
    """Text that is always there: at most one line, its end included."""

    text: str
    file: str
    line: int


class Variable(msgspec.Struct, frozen=True, tag="variable", tag_field="is"):
    """A value that is put in as it is given."""

    name: str
    file: str
    line: int


class Dynamic(msgspec.Struct, frozen=True, tag="dynamic", tag_field="is"):
    """Anything a template computes; `what` says how, such as `for` or `filter upper`."""

    what: str
    file: str
    line: int


Piece: TypeAlias = Literal | Variable | Dynamic


class MappedPrompt(msgspec.Struct, frozen=True):
    """One template; `target` is the file it was converted into, "" where it was not."""

    name: str
    pieces: tuple[Piece, ...]
    target: str = ""


class PromptMap(msgspec.Struct, frozen=True):
    """All templates of a folder."""

    prompts: tuple[MappedPrompt, ...] = ()
    v: int = VERSION


def read_prompt_map(path: Path) -> PromptMap:
    """Read a map; raises `DeclarationRefused`."""
    try:
        found = msgspec.json.decode(read_text(path), type=PromptMap)
    except msgspec.DecodeError as error:
        raise DeclarationRefused(str(path), "", f"no map of prompts: {error}") from error
    if found.v != VERSION:
        why = f"a map of version {found.v}; this reads version {VERSION}"
        raise DeclarationRefused(str(path), "v", why)
    return found


LITERAL_AT_LEAST = 8
"""Letters a template must have of its own: one of nothing but values would fit any message."""

Span = tuple[int, int]


class _Fit(NamedTuple):
    """A template a message is made of, and where each of its pieces stands in it."""

    prompt: MappedPrompt
    text: str
    spans: tuple[Span, ...]


def source_of(known: PromptMap, legacy: str | None, graph: str | None) -> PromptSource | None:
    """Name template, line and variable two messages differ by; None where no template fits."""
    for text, other in ((legacy, graph), (graph, legacy)):
        fit = None if text is None else _best(known, text)
        if fit is not None:
            index = _changed_value(fit, other or "")
            if index is None:
                index = _at(fit.spans, first_difference(fit.text, other or ""))
            return _source(fit.prompt, fit.prompt.pieces[index])
    return None


def spans_of(pieces: Sequence[Piece], text: str) -> tuple[Span, ...] | None:
    """Find where each piece stands in a text; None where they do not make it up."""
    found = _expression(tuple(pieces)).fullmatch(text)
    return found and tuple(found.span(group) for group in range(1, len(pieces) + 1))


@lru_cache(maxsize=1_024)
def _expression(pieces: tuple[Piece, ...]) -> re.Pattern[str]:
    """Return what texts of these pieces match, each piece a group.

    A literal is taken where it first stands behind the last one, and nowhere else (the group is
    atomic): whatever values are, if any reading fits this one does, and it looks at no letter
    twice. Of several values beside each other the first gets all there is: no more can be told.
    """
    written = values = ""
    left = len(pieces)
    for literal, group in groupby(pieces, key=lambda piece: isinstance(piece, Literal)):
        held = list(group)
        left -= len(held)
        if literal:
            text = "".join(f"({re.escape(it.text)})" for it in held if isinstance(it, Literal))
            # The last literal ends the text, wherever else it stands.
            written += f"(?{'>' if left else ':'}{values}{text})"
            values = ""
        else:
            values = "(.*?)" + "()" * (len(held) - 1)
    return re.compile(written + values, re.DOTALL)


def _best(known: PromptMap, text: str) -> _Fit | None:
    """Find the fitting template with the most text of its own."""
    fits = [
        (own, _Fit(prompt, text, spans))
        for prompt in known.prompts
        if (own := _own(prompt.pieces)) >= LITERAL_AT_LEAST
        and (spans := spans_of(prompt.pieces, text)) is not None
    ]
    return max(fits, key=lambda fit: fit[0])[1] if fits else None


def _own(pieces: Sequence[Piece]) -> int:
    return sum(len(piece.text) for piece in pieces if isinstance(piece, Literal))


def _changed_value(fit: _Fit, other: str) -> int | None:
    """Find the first value that is another in the other message, if that fits, too."""
    spans = spans_of(fit.prompt.pieces, other)
    if spans is None:
        return None
    for index, (ours, theirs) in enumerate(zip(fit.spans, spans, strict=True)):
        if fit.text[slice(*ours)] != other[slice(*theirs)]:
            return index
    return None


def _at(spans: Sequence[Span], offset: int) -> int:
    found = (k for k, (start, end) in enumerate(spans) if start <= offset < end)
    return next(found, len(spans) - 1)


def _source(prompt: MappedPrompt, piece: Piece) -> PromptSource:
    match piece:
        case Literal(file=file, line=line):
            return PromptSource(prompt.name, file, line)
        case Variable(name=name, file=file, line=line):
            return PromptSource(prompt.name, file, line, variable=name)
        case Dynamic(what=what, file=file, line=line):
            return PromptSource(prompt.name, file, line, computed=what)
        case _:
            assert_never(piece)
