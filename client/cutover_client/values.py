"""Arguments and results as JSON."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import inspect
import json
import uuid
from collections.abc import Collection, Mapping
from typing import Any, Final

from cutover_client.calls import EffectFailed, NotJson


def arguments_of(
    effect: str,
    signature: inspect.Signature,
    ignore: Collection[str],
    args: tuple[Any, ...],
    named: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a call's arguments by name, with defaults, as JSON; raises `NotJson`."""
    bound = signature.bind(*args, **named)
    bound.apply_defaults()
    return {
        name: as_json(f"the argument {name!r}", effect, value)
        for name, value in bound.arguments.items()
        if name not in ignore
    }


def as_json(what: str, effect: str, value: Any) -> Any:
    """Return a value as it is after it was written as JSON and read; raises `NotJson`.

    Data classes, pydantic's models, dates, enumerations, UUIDs and decimals have one obvious form.
    """
    if type(value) in _ATOMS:
        return value
    try:
        text = _encode(value)
        text.encode()  # a lone surrogate is no text
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(what, effect, type(value).__name__) from error


def as_mcp(value: Any) -> dict[str, Any]:
    """Return JSON as an MCP server's tool returns it: what is no object is one under `result`."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": value if isinstance(value, dict) else {"result": value},
        "isError": False,
    }


def of_mcp(effect: str, told: Any) -> Any:
    """Return what an MCP server's tool returned as JSON, or its text where it has no structure.

    Raises `EffectFailed` where the tool did.
    """
    text = "".join(part.get("text", "") for part in told["content"])
    if told.get("isError"):
        raise EffectFailed(effect, text or "isError")
    made = told.get("structuredContent")
    if made is None:
        return text
    return made["result"] if made.keys() == {"result"} else made


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if (dump := getattr(value, "model_dump", None)) is not None:
        return dump(mode="json")
    match value:
        case dt.date() | dt.time():
            return value.isoformat()
        case enum.Enum():
            return value.value
        case uuid.UUID() | decimal.Decimal():
            return str(value)
        case _:
            raise TypeError(type(value).__name__)


_ATOMS: Final = frozenset({bool, int, type(None)})
_encode: Final = json.JSONEncoder(default=_plain, allow_nan=False, ensure_ascii=False).encode
