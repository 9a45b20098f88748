"""The value that results when what stands at a path into JSON changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from compare.damage import ILLEGIBLE
from contract.wire.paths import ANY, ANY_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.wire.paths import Path


class _Gone:
    """Stands for a value that is taken out."""


GONE: Final = _Gone()


def changed(value: Any, steps: Path, change: Callable[[Any], Any]) -> Any:
    """Give a value with everything at the steps changed; `GONE` takes it out.

    `*` is any one key or index, `**` any number of them. Text that holds a JSON object or list,
    as arguments of tools do, is entered. Where nothing changes, the value itself is returned; so
    is one that is nested deeper than can be followed.
    """
    try:
        return _changed(value, steps, change)
    except RecursionError:
        return value


def _changed(value: Any, steps: Path, change: Callable[[Any], Any]) -> Any:
    if not steps:
        return change(value)
    if steps[0] == ANY_DEPTH:
        value = _changed(value, steps[1:], change)
        if value is GONE or (len(steps) == 1 and isinstance(value, str)):
            return value
    if isinstance(value, dict):
        return _of_dict(value, steps, change)
    if isinstance(value, list):
        return _of_list(value, steps, change)
    if isinstance(value, str) and value[:1] in {"{", "["}:
        return _of_text(value, steps, change)
    return value


def _below(key: str, steps: Path) -> Path | None:
    """Give the steps that are left below a key; None where it is not on the path."""
    if steps[0] == ANY_DEPTH:
        return steps
    return steps[1:] if steps[0] in {ANY, key} else None


def _of_dict(value: dict[str, Any], steps: Path, change: Callable[[Any], Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, held in value.items():
        rest = _below(key, steps)
        put = held if rest is None else _changed(held, rest, change)
        if put is not GONE:
            made[key] = put
    return value if _same(value, made) else made


def _same(value: dict[str, Any], made: dict[str, Any]) -> bool:
    return len(value) == len(made) and all(made[key] is value[key] for key in value)


def _of_list(value: list[Any], steps: Path, change: Callable[[Any], Any]) -> list[Any]:
    made: list[Any] = []
    for index, held in enumerate(value):
        rest = _below(str(index), steps)
        put = held if rest is None else _changed(held, rest, change)
        if put is not GONE:
            made.append(put)
    same = len(value) == len(made) and all(a is b for a, b in zip(value, made, strict=True))
    return value if same else made


def _of_text(value: str, steps: Path, change: Callable[[Any], Any]) -> str:
    try:
        held = msgspec.json.decode(value)
    except ILLEGIBLE:
        return value
    put = changed(held, steps, change)
    return value if put is held else msgspec.json.encode(put).decode()
