"""The tools that every deployment has: `calculate`, `current_time`, `search_memory`."""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from msgspec import Meta

from effects import world
from effects.memory import memories, namespace
from effects.tools import ToolError, tool

MAX_EXPRESSION: Final = 500
"""Characters of an expression."""
MAX_BITS: Final = 3_400
"""Bits of a whole number, about a thousand digits."""
FOUND_AT_MOST: Final = 5
"""Memories that `search_memory` finds."""
_DIGITS: Final = 12

Number = int | float


@tool(description="Tell the current date, time and weekday.")
async def current_time(
    timezone: Annotated[
        str | None, Meta(description="IANA time zone, for example Asia/Shanghai")
    ] = None,
) -> str:
    """Return date, time, weekday and zone in one line; without a zone in the configured one."""
    here = world.current()
    try:
        zone = ZoneInfo(timezone) if timezone else here.zone
    except (KeyError, ValueError, OSError) as failure:
        raise ToolError(code="bad_arguments") from failure
    return f"{datetime.fromtimestamp(here.clock(), zone):%Y-%m-%d %H:%M:%S %A} ({zone.key})"


@tool(description="Search what is remembered about the user from earlier conversations.")
async def search_memory(
    query: Annotated[str, Meta(min_length=1, max_length=1_000, description="What to look for")],
    *,
    user_id: str,
) -> str:
    """Return one memory a line, the nearest first; "" without a user, or a memory."""
    if not user_id:
        return ""
    found = await world.current().memory.asearch(
        namespace(user_id), query=query, limit=FOUND_AT_MOST
    )
    return "\n".join(f"- {one.text}" for one in memories(found))


@tool(
    description="Calculate an arithmetic expression. "
    "Functions: sqrt, abs, round, min, max; constants: pi, e."
)
async def calculate(
    expression: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_EXPRESSION,
            description="For example 12*7 or sqrt(2)/2; operators + - * / // % ** and parentheses",
        ),
    ],
) -> str:
    """Return the value of an expression as text."""
    try:
        return evaluate(expression)
    except ValueError as failure:
        raise ToolError(code="bad_arguments") from failure
    except ArithmeticError as failure:
        raise ToolError(code="tool_failed") from failure


BUILT_IN: Final = (calculate, current_time, search_memory)


class NotArithmetic(ValueError):
    """An expression is no arithmetic, or nested too deeply."""


# What may be written at all: Python's parser would warn about odd spellings.
_WRITTEN: Final = re.compile(
    r"(?:\s|[-+*/%(),]|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])|[a-z]+(?!\w))+", re.ASCII
)
_AS_WRITTEN: Final = str.maketrans(
    {"×": "*", "÷": "/", "−": "-", "（": "(", "）": ")", "，": ",", "^": "**"}
)
_NAMES: Final[Mapping[str, float]] = {"pi": math.pi, "e": math.e}


def evaluate(expression: str) -> str:
    """Return the value of an arithmetic expression: 12 digits, whole numbers without a point.

    `^` is a power. Raises `NotArithmetic`, and `ArithmeticError` where there is no finite real
    result, or one of more than a thousand digits.
    """
    text = expression.translate(_AS_WRITTEN).strip()
    if len(text) > MAX_EXPRESSION or not _WRITTEN.fullmatch(text):
        raise NotArithmetic(expression)
    try:
        value = _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, TypeError, RecursionError, MemoryError) as failure:
        raise NotArithmetic(expression) from failure
    return str(value) if isinstance(value, int) else f"{value + 0.0:.{_DIGITS}g}"  # no -0


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value):
            return _bounded(value)
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _bounded(_OPERATORS[type(op)](_value(operand)))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _bounded(_OPERATORS[type(op)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*map(_value, args)))
        case _:
            raise NotArithmetic


def _bounded(value: object) -> Number:
    if isinstance(value, int) and value.bit_length() <= MAX_BITS:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise OverflowError  # too large, no number, or complex: the root of a negative number


def _power(base: Number, exponent: Number) -> object:
    """Raise to a power whose size is checked before it is computed."""
    whole = isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1
    if whole and int(base).bit_length() * abs(exponent) > 2 * MAX_BITS:
        raise OverflowError
    return base**exponent


_OPERATORS: Final[Mapping[type[ast.operator | ast.unaryop], Callable[..., object]]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_FUNCTIONS: Final[Mapping[str, Callable[..., object]]] = {
    "sqrt": lambda value: value**0.5,
    "abs": abs,
    "round": lambda value, digits=0: round(float(value), digits),
    "min": min,
    "max": max,
}
