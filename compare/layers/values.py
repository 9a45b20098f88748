"""Values: where two decoded JSON values differ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any

import msgspec

from compare.content import NOT_SET
from compare.input.damage import ILLEGIBLE
from contract.operations import OPERATIONS

ValueChange = tuple[str, str | None, str | None]
"""(path below the value, legacy, graph); None where nothing stands."""

REMEMBERED_UP_TO = 4_096
_STEP = re.compile(r"\['([^']*)'\]|\[\"([^\"]*)\"\]|\[(\d+)\]")


def changes(legacy: bytes, graph: bytes) -> tuple[ValueChange, ...]:
    """List where two JSON documents differ, by path; short ones met lately are remembered."""
    if len(legacy) + len(graph) <= REMEMBERED_UP_TO:
        return _remembered(legacy, graph)
    return _changes(legacy, graph)


def _changes(legacy: bytes, graph: bytes) -> tuple[ValueChange, ...]:
    try:
        left, right = msgspec.json.decode(legacy), msgspec.json.decode(graph)
        found: list[ValueChange] = []
        if not _of_one_shape(left, right, "", found):
            found = aligned(left, right)
        if not found and sorted_text(left) != sorted_text(right):
            # DeepDiff takes 1 for 1.0 in lists, and Python 0.0 for -0.0.
            found = [("", written(left), written(right))]
    except ILLEGIBLE:
        # What is nested too deep to be walked through differs as a whole.
        return (("", legacy.decode("utf-8", "replace"), graph.decode("utf-8", "replace")),)
    return tuple(sorted(found, key=itemgetter(0)))


_remembered = lru_cache(maxsize=1_024)(_changes)


def _of_one_shape(left: Any, right: Any, path: str, found: list[ValueChange]) -> bool:
    """Collect the leaves that differ; False where keys or lists do, for these need aligning."""
    if type(left) is dict and type(right) is dict:
        return left.keys() == right.keys() and all(
            _of_one_shape(left[key], right[key], f"{path}.{key}", found) for key in left
        )
    if isinstance(left, dict | list) or isinstance(right, dict | list):
        return written(left) == written(right)
    if type(left) is not type(right) or left != right:
        found.append((path, _text(left), _text(right)))
    return True


def aligned(left: Any, right: Any) -> list[ValueChange]:
    """List the differences of two values, lists and keys aligned."""
    # A router judges shadows without it, and it draws in pandas.
    from deepdiff import DeepDiff  # noqa: PLC0415 - above

    found = DeepDiff(left, right, view="tree", verbose_level=2)
    return [
        (_path(level), _text(level.t1), _text(level.t2))
        for group in found.values()
        for level in group
    ]


def _path(level: Any) -> str:
    steps = _STEP.findall(level.path())
    return "".join(f"[{index}]" if index else f".{a or b}" for a, b, index in steps)


def sorted_text(value: Any) -> str:
    """Write a JSON value compactly, its keys in order."""
    return msgspec.json.encode(value, order="sorted").decode()


def _text(value: Any) -> str | None:
    if type(value).__name__ == "NotPresent":
        return None
    return value if isinstance(value, str) else written(value)


def written(value: Any) -> str:
    """Write a JSON value compactly."""
    return msgspec.json.encode(value).decode()


def unset_text(label: str, path: str) -> str | None:
    """Describe an argument of an operation that a call leaves to its default; None: no argument."""
    name = path.removeprefix(".")
    fields = _arguments().get(label, {})
    if name not in fields:
        return None
    default = fields[name].default
    if default in (None, msgspec.NODEFAULT):
        return NOT_SET
    return f"{NOT_SET} (default {written(default)})"


@cache
def _arguments() -> Mapping[str, Mapping[str, msgspec.structs.FieldInfo]]:
    return {
        row.label: {field.encode_name: field for field in msgspec.structs.fields(row.arguments)}
        for row in OPERATIONS.values()
    }
