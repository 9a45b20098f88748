"""What is written of a value: finalized and escaped as the environment would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import escape

from cutover.prompts.lines import constant, size_of
from cutover.prompts.reasons import refusal
from cutover.prompts.values import Frame, Given, Known, Missing, Text, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jinja2 import nodes

    from compare.layers.prompt_sources import Piece
    from cutover.prompts.environment import Prompting
    from cutover.prompts.expressions import Expressions


class Writer:
    """Writes values, and counts what is constant of them."""

    def __init__(self, made: Prompting, expressions: Expressions) -> None:
        self._finalizes = made.environment.finalize is not None
        self._expressions = expressions
        self.size = 0

    def written(self, value: Value, node: nodes.Node, frame: Frame) -> list[Piece]:
        """Give the pieces an output writes; raises `Unresolved`."""
        line = node.lineno
        if self._finalizes:
            raise refusal(frame.file, line, "finalize", f"the environment finalizes {_said(value)}")
        if not frame.escaped or (isinstance(value, Given | Text) and value.safe):
            return self.sized(self._expressions.pieces(value, node, frame))
        match value:
            case Known(value=known):
                return self.sized(constant(str(escape(known)), frame.file, line))
            case Text() if (text := value.constant) is not None:
                return self.sized(constant(str(escape(text)), frame.file, line))
            case Missing():
                return self.sized(self._expressions.pieces(value, node, frame))
            case _:
                said = f"autoescape turns <, >, & and quotes of {_said(value)} into entities"
                raise refusal(frame.file, line, "autoescape", said)

    def sized(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Count pieces."""
        self.size += size_of(pieces)
        return list(pieces)


def _said(value: Value) -> str:
    return f"the variable {value.name!r}" if isinstance(value, Given) else "what is computed"
