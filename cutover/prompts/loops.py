"""Loops over constants: the items of their turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutover.prompts.binding import bind
from cutover.prompts.bounds import TURNS_AT_MOST
from cutover.prompts.reasons import refusal
from cutover.prompts.values import inner_of

if TYPE_CHECKING:
    from jinja2 import nodes

    from cutover.prompts.expressions import Expressions
    from cutover.prompts.values import Frame


def turns_of(node: nodes.For, frame: Frame, values: Expressions) -> tuple[object, ...]:
    """Give the items a loop runs over; raises `Unresolved` where they are no constants."""
    if node.recursive:
        raise refusal(frame.file, node.lineno, "loop", "a loop calls itself")
    items = values.constant(node.iter, frame, "loop", "a loop")
    if not isinstance(items, list | tuple | dict | str):
        said = f"a loop runs over {type(items).__name__}"
        raise refusal(frame.file, node.lineno, "loop", said)
    if len(items) > TURNS_AT_MOST:
        said = f"a loop has more than {TURNS_AT_MOST:,} turns"
        raise refusal(frame.file, node.lineno, "size", said)
    return tuple(item for item in items if _kept(item, node, frame, values))


def _kept(item: object, node: nodes.For, frame: Frame, values: Expressions) -> bool:
    if node.test is None:
        return True
    inner = inner_of(frame)
    bind(node.target, item, inner)
    return bool(values.constant(node.test, inner, "loop", "a loop's condition"))
