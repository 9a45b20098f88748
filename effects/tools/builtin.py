"""The tools every deployment has: arithmetic, units, the time, and search of the memory."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Final
from zoneinfo import ZoneInfo

import msgspec

from contract.ports import Clock, Memory
from contract.stores import Recall
from effects.tools.tool import BadArguments, Tool, ToolContext, tool
from effects.tools.units import Unit, convert, unit

BUILT_IN: Final = ("calculate", "current_time", "convert_units", "search_memory")
"""Their names."""
MAX_EXPRESSION: Final = 500  # characters of an expression
MAX_DEPTH: Final = 300  # levels of its tree: a sum of as many numbers
MAX_BITS: Final = 3_400  # of a whole number: about a thousand digits
_DIGITS: Final = 12
_EXACT_BELOW: Final = 1e15  # whole numbers a double holds exactly, and more


def format_number(number: float) -> str:
    """Write a number: whole ones without a point, others with up to 12 significant digits."""
    if isinstance(number, int):
        return str(number)
    if not math.isfinite(number):
        raise OverflowError(number)
    rounded = float(f"{number:.{_DIGITS}g}")
    if rounded.is_integer() and abs(rounded) < _EXACT_BELOW:
        return str(int(rounded))
    return f"{rounded:.{_DIGITS}g}"


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
            max_length=MAX_EXPRESSION,
            description="For example 12*7 or sqrt(2)/2; operators + - * / // % ** and parentheses",
        ),
    ]


class NotArithmetic(BadArguments):
    """An expression is not arithmetic, or nested too deeply."""

    def __init__(self) -> None:
        super().__init__(argument="expression", reason="not an arithmetic expression")


@tool(
    "calculate",
    "Calculate an arithmetic expression. Functions: sqrt, abs, round, min, max; constants: pi, e.",
    CalculateArguments,
    read_only=True,
)
async def calculator(arguments: CalculateArguments, _: ToolContext) -> str:
    """Calculate an expression."""
    return calculate(arguments.expression)


def calculate(expression: str) -> str:
    """Calculate; raises `NotArithmetic`, or `ArithmeticError` where there is no result.

    `^` is taken as a power, as people write it; `1/3` has twelve digits, `84/2` none to spare.
    """
    text = expression.translate(_AS_WRITTEN).replace("^", "**").strip()
    if len(text) > MAX_EXPRESSION or not _WRITTEN.fullmatch(text):
        raise NotArithmetic
    try:
        tree = ast.parse(text, mode="eval")
        return format_number(_value(tree.body, MAX_DEPTH))
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
    if isinstance(value, int) and value.bit_length() <= MAX_BITS:
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
    """Raise to a power, after a check of how large the result would be."""
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1:
        bits = base.bit_length() * abs(exponent)
        if bits > 2 * MAX_BITS:
            raise OverflowError(bits)
    return base**exponent


def _rounded(value: Number, digits: Number = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > MAX_EXPRESSION:
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


UnitName = Annotated[
    str, msgspec.Meta(min_length=1, max_length=40, description="For example km, mile, 公斤, °F, MB")
]


class ConvertUnitsArguments(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"given": "from_unit", "wanted": "to_unit"},
):
    """Arguments of `convert_units`."""

    value: float
    given: UnitName
    wanted: UnitName


@tool(
    "convert_units",
    "Convert a value between units of length, mass, temperature, volume, speed, area, time or "
    "data. Names may be English or Chinese; a year has 365 days, a KB 1000 bytes.",
    ConvertUnitsArguments,
    read_only=True,
)
async def unit_converter(arguments: ConvertUnitsArguments, _: ToolContext) -> str:
    """Convert a value into another unit of its dimension."""
    given = _unit("from_unit", arguments.given)
    wanted = _unit("to_unit", arguments.wanted)
    if given.dimension != wanted.dimension:
        raise BadArguments(reason=f"not a unit of {given.dimension!r}", argument="to_unit")
    return f"{format_number(convert(arguments.value, given, wanted))} {wanted.symbol}"


def _unit(argument: str, name: str) -> Unit:
    found = unit(name)
    if found is None:
        raise BadArguments(argument, f"no unit {name!r}")
    return found


Zone = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z][A-Za-z0-9_+/-]*$",
        description="IANA time zone, for example Asia/Shanghai",
    ),
]


class CurrentTimeArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `current_time`."""

    zone: Zone | None = None


def time_tool(clock: Clock) -> Tool:
    """Make the tool `current_time`, in UTC where the model names no zone."""

    @tool(
        "current_time",
        "Tell the current date, time and weekday.",
        CurrentTimeArguments,
        read_only=True,
    )
    async def current_time(arguments: CurrentTimeArguments, _: ToolContext) -> dict[str, str]:
        name = arguments.zone or "UTC"
        try:
            there = ZoneInfo(name)
        except (KeyError, ValueError, OSError) as failure:
            raise BadArguments(reason="no such time zone", argument="zone") from failure
        now = (await clock.now("current_time")).astimezone(there)
        return {
            "date": f"{now:%Y-%m-%d}",
            "time": f"{now:%H:%M:%S}",
            "weekday": f"{now:%A}",
            "zone": name,
        }

    return current_time


class SearchMemoryArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `search_memory`."""

    query: Annotated[
        str, msgspec.Meta(min_length=1, max_length=1_000, description="What to look for")
    ]


def memory_tool(memory: Memory) -> Tool:
    """Make the tool `search_memory`; a request without a user finds nothing."""

    @tool(
        "search_memory",
        "Search what is remembered about the user from earlier conversations.",
        SearchMemoryArguments,
        read_only=True,
    )
    async def search_memory(arguments: SearchMemoryArguments, context: ToolContext) -> list[str]:
        if context.user_id is None:
            return []
        query = Recall(user_id=context.user_id, query=arguments.query)
        return [entry.text for entry in await memory.recall("search_memory", query)]

    return search_memory


def builtin_tools(clock: Clock, memory: Memory | None = None) -> list[Tool]:
    """Make them; without a memory there is none to search."""
    tools = [calculator, time_tool(clock), unit_converter]
    if memory is not None:
        tools.append(memory_tool(memory))
    return tools
