"""Values: where two decoded JSON values differ."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec
from deepdiff import DeepDiff

ValueChange = tuple[str, str | None, str | None]
"""(path below the value, legacy, graph); None where nothing stands."""

_STEP = re.compile(r"\['([^']*)'\]|\[\"([^\"]*)\"\]|\[(\d+)\]")


@lru_cache(maxsize=1_024)
def changes(legacy: bytes, graph: bytes) -> tuple[ValueChange, ...]:
    """List where two JSON documents differ, by path; the same pair is answered from memory."""
    try:
        left, right = msgspec.json.decode(legacy), msgspec.json.decode(graph)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return (("", legacy.decode("utf-8", "replace"), graph.decode("utf-8", "replace")),)
    found = DeepDiff(left, right, view="tree", verbose_level=2)
    levels = [level for group in found.values() for level in group]
    return tuple(sorted((_path(level), _said(level.t1), _said(level.t2)) for level in levels))


def _path(level: Any) -> str:  # noqa: ANN401 (DeepDiff ships no type for it)
    steps = _STEP.findall(level.path())
    return "".join(f"[{index}]" if index else f".{a or b}" for a, b, index in steps)


def _said(value: Any) -> str | None:  # noqa: ANN401 (JSON)
    if type(value).__name__ == "NotPresent":
        return None
    return value if isinstance(value, str) else written(value)


def written(value: Any) -> str:  # noqa: ANN401 (JSON)
    """Write a JSON value compactly."""
    return msgspec.json.encode(value).decode()
