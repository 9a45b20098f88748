"""Constants computed from constants, as Python and so Jinja2 does it, within bounds."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from jinja2 import nodes

from contract.errors import CutoverError
from cutover.prompts.bounds import OPERATORS, computed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Part = Callable[[nodes.Node], Any]

_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gteq": operator.ge,
    "lt": operator.lt,
    "lteq": operator.le,
    "in": lambda a, b: a in b,
    "notin": lambda a, b: a not in b,
}


class NotComputed(CutoverError):
    """An expression is of a kind nobody computes here."""

    def __init__(self, node: nodes.Node) -> None:
        super().__init__(f"an expression ({type(node).__name__}) is computed")


def failure(error: Exception) -> str:
    """Say what a template's own mistake raises."""
    return f"it fails: {type(error).__name__}: {error}"


def computation(node: nodes.Node, part: Part) -> object:
    """Compute an expression from its parts; raises `TooLarge`, and what the template does."""
    match node:
        case nodes.Tuple(items=items):
            return tuple(part(item) for item in items)
        case nodes.List(items=items):
            return [part(item) for item in items]
        case nodes.Dict(items=pairs):
            return {part(pair.key): part(pair.value) for pair in pairs}
        case nodes.BinExpr():
            return _of_two(node, part)
        case nodes.Compare():
            return _compared(node, part)
        case _:
            return _of_one(node, part)


def _of_one(node: nodes.Node, part: Part) -> object:
    match node:
        case nodes.Not(node=below):
            return not part(below)
        case nodes.Neg(node=below):
            return -part(below)
        case nodes.Pos(node=below):
            return +part(below)
        case _:
            raise NotComputed(node)


def _of_two(node: nodes.BinExpr, part: Part) -> object:
    match node:
        case nodes.And(left=left, right=right):
            return part(left) and part(right)
        case nodes.Or(left=left, right=right):
            return part(left) or part(right)
        case nodes.BinExpr(operator=sign, left=left, right=right) if sign in OPERATORS:
            return computed(sign, part(left), part(right))
        case _:
            raise NotComputed(node)


def _compared(node: nodes.Compare, part: Part) -> bool:
    left = part(node.expr)
    for operand in node.ops:
        right = part(operand.expr)
        if not _COMPARED[operand.op](left, right):
            return False
        left = right
    return True
