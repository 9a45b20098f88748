"""Bounds on what a template may make while it is read or proved: size, numbers, steps."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from contract.errors import CutoverError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TEXT_AT_MOST = 1_000_000
WORK_AT_MOST = 10_000_000
BITS_AT_MOST = 4_096
TURNS_AT_MOST = 1_000
STEPS_AT_MOST = 20_000
DEPTH_AT_MOST = 30


class TooLarge(CutoverError):
    """A template makes more than anybody's prompt holds."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} may make more than anybody's prompt holds")


_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
OPERATORS = frozenset(_OPERATIONS)


def computed(sign: str, left: Any, right: Any) -> Any:
    """Compute what an operator of a template makes; raises `TooLarge` before it is made."""
    if _weight(sign, left, right) > TEXT_AT_MOST:
        what = f"operator {sign}"
        raise TooLarge(what)
    return _OPERATIONS[sign](left, right)


def _weight(sign: str, left: object, right: object) -> int:
    """Estimate the size of a result from above: letters, items or bits."""
    match sign, left, right:
        case "*", str() | bytes() | list() | tuple(), int():
            return len(left) * right
        case "*", int(), str() | bytes() | list() | tuple():
            return left * len(right)
        case "+", str() | list() | tuple(), str() | list() | tuple():
            return len(left) + len(right)
        case "**", int(), int():
            return _heavy(left.bit_length() * max(right, 0))
        case "*", int(), int():
            return _heavy(left.bit_length() + right.bit_length())
        case "%", str() | bytes(), _:
            return TEXT_AT_MOST + 1  # "%1000000000d": the width is in the text
        case _:
            return 0


def _heavy(bits: int) -> int:
    return 0 if bits <= BITS_AT_MOST else TEXT_AT_MOST + 1
