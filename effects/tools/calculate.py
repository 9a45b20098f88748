"""`calculate`: arithmetic on Python's syntax tree, bounded so that nothing can hang."""

from __future__ import annotations

import ast
import math
import operator
import re
from typing import TYPE_CHECKING, Annotated

import msgspec

from effects.tools.numbers import readable
from effects.tools.tool import BadArguments, Tool, ToolContext, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LONGEST = 500  # characters of an expression
DEEPEST = 300  # levels of its tree: a sum of as many numbers
MOST_BITS = 3_400  # of a whole number: about a thousand digits

Number = int | float

# What may be written at all. Python's parser would otherwise warn about odd spellings of its own.
_WRITTEN = re.compile(
    r"(?:\s|[-+*/%(),]|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])|[a-z]+(?!\w))+", re.ASCII
)
_AS_WRITTEN = str.maketrans({"×": "*", "÷": "/", "−": "-", "（": "(", "）": ")", "，": ","})
_NAMES: Mapping[str, float] = {"pi": math.pi, "e": math.e}


class CalculateArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `calculate`."""

    expression: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            max_length=LONGEST,
            description="For example 12*7 or sqrt(2)/2; operators + - * / // % ** and parentheses",
        ),
    ]


class NotArithmetic(BadArguments):
    """An expression says something else than arithmetic, or is nested too deeply."""

    def __init__(self) -> None:
        super().__init__(argument="expression", reason="not an arithmetic expression")


def calculator() -> Tool:
    """Make the tool `calculate`."""

    @tool(
        "calculate",
        "Calculate an arithmetic expression. Functions: sqrt, abs, round, min, max; constants: "
        "pi, e.",
        CalculateArguments,
        read_only=True,
    )
    async def calculator(arguments: CalculateArguments, _: ToolContext) -> str:
        return calculate(arguments.expression)

    return calculator


def calculate(expression: str) -> str:
    """Calculate; raises `NotArithmetic`, or `ArithmeticError` where there is no result.

    `^` is taken as a power, as people write it; `1/3` has twelve digits, `84/2` none to spare.
    """
    text = expression.translate(_AS_WRITTEN).replace("^", "**").strip()
    if len(text) > LONGEST or not _WRITTEN.fullmatch(text):
        raise NotArithmetic
    try:
        tree = ast.parse(text, mode="eval")
        return readable(_value(tree.body, DEEPEST))
    except (SyntaxError, TypeError, RecursionError, MemoryError) as failure:
        raise NotArithmetic from failure
    except ValueError as failure:  # the square root of a negative number
        raise ArithmeticError from failure


def _value(node: ast.expr, deep: int) -> Number:
    if deep == 0:
        raise NotArithmetic
    match node:
        case ast.Constant(value=int() | float() as value):
            return _bounded(value)
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, deep - 1)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, deep - 1)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            act = _OPERATORS[type(op)]
            return _bounded(act(_value(left, deep - 1), _value(right, deep - 1)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*(_value(arg, deep - 1) for arg in args)))
        case _:
            raise NotArithmetic


def _bounded(value: object) -> Number:
    if isinstance(value, int) and value.bit_length() <= MOST_BITS:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    # Too large, not a number, or complex: the root of a negative number.
    raise OverflowError(type(value))


def _divided(left: Number, right: Number) -> Number:
    """Divide; whole numbers that divide evenly stay whole and exact."""
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right
    return left / right


def _power(base: Number, exponent: Number) -> object:
    """Raise to a power, having looked first how large the result would be."""
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1:
        bits = base.bit_length() * abs(exponent)
        if bits > 2 * MOST_BITS:
            raise OverflowError(bits)
    return base**exponent


def _rounded(value: Number, digits: Number = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > LONGEST:
        raise NotArithmetic
    return round(value, digits)


_OPERATORS: Mapping[type[ast.operator], Callable[[Number, Number], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divided,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "sqrt": math.sqrt,
    "abs": abs,
    "round": _rounded,
    "min": min,
    "max": max,
}
