"""A map of prompts: of what pieces a template's text is made, and where each stands.

`cutover prompts` writes it (`prompts.map.json`); comparisons read it and no code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from compare.declared import read_text
from contract.declarations import DeclarationRefused

if TYPE_CHECKING:
    from pathlib import Path

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
