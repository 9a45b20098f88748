"""Text as pieces of one line each, so that whatever is found in it has a line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jinja2 import nodes

from compare.layers.prompt_sources import Literal, Variable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compare.layers.prompt_sources import Piece

_PLACE = 8
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def literals(text: str, file: str, line: int) -> tuple[Piece, ...]:
    """Cut a text that begins on a line of a file into its lines."""
    return tuple(Literal(part, file, line + k) for k, part in enumerate(_LINE.findall(text)))


def constant(text: str, file: str, line: int) -> tuple[Piece, ...]:
    """Cut a text that all comes from one line of a file."""
    return tuple(Literal(part, file, line) for part in _LINE.findall(text))


def variable(name: str, file: str, line: int) -> Variable:
    """Give a variable's place."""
    return Variable(name, file, line)


def size_of(pieces: Iterable[Piece]) -> int:
    """Say how much there is of pieces: letters, and as many for each variable as for its place."""
    return sum(len(piece.text) if isinstance(piece, Literal) else _PLACE for piece in pieces)


def line_of(node: nodes.Node) -> int:
    """Give a node's line; Jinja2 makes some that have none, and these have the first below them."""
    below = (found.lineno for found in node.find_all(nodes.Node))
    return node.lineno or next((line for line in below if line), 1)
