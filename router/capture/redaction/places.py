"""Places in an exchange's JSON: dotted paths, and the walk along a tree that knows where it is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

Json: TypeAlias = Any
"""What JSON decodes to without a type."""

Path = tuple[str, ...]
Paths = tuple[Path, ...]

ANY = "*"
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")
# Words of a protocol, not of a person: no name found at a path is looked for here.
_PROTOCOL = frozenset(
    {"action", "code", "error", "finish", "kind", "relation", "role", "state", "status", "step"}
    | {"tool_choice", "type"}
)


class Visitor(Protocol):
    """What is done with the leaves of a tree."""

    def leaf(self, text: str, *, protocol: bool) -> str:
        """Treat a text; `protocol` where a word of a protocol may stand."""
        ...

    def number(self, value: int) -> int | str:
        """Treat a whole number a person may have typed."""
        ...

    def pointed(self, name: str, value: str) -> str:
        """Treat a value a path leads to."""
        ...


def parsed(paths: Iterable[str]) -> Paths:
    """Split dotted paths."""
    return tuple(tuple(path.split(".")) for path in paths)


def below(paths: Paths, *steps: str) -> Paths:
    """Give what is left of the paths that go along `steps`."""
    for step in steps:
        paths = tuple(path[1:] for path in paths if path and path[0] in (step, ANY))
    return paths


def reachable(paths: Paths, raw: bytes) -> Paths:
    """Give the paths that could lead somewhere in JSON: the names along them are said there."""
    if not paths or b"\\" in raw:  # a name may be written in escapes
        return paths
    return tuple([path for path in paths if all(_said(step, raw) for step in path)])


def _said(step: str, raw: bytes) -> bool:
    return step == ANY or step.isdigit() or step.encode() in raw


class Walk:
    """Walks a tree of JSON; `numbers` where whole numbers are a person's own."""

    def __init__(self, visitor: Visitor, *, numbers: bool = False) -> None:
        self._visitor = visitor
        self._numbers = numbers

    def tree(self, value: Json, paths: Paths, name: str = "", pointed: str = "") -> Json:
        """Give the tree with its leaves treated; `name` is the key it stands under."""
        if () in paths:
            pointed = pointed or name or "value"
        if isinstance(value, str):
            return self._text(value, name, pointed)
        if isinstance(value, dict):
            return {
                self._key(key): self.tree(child, paths and below(paths, key), key, pointed)
                for key, child in value.items()
            }
        if isinstance(value, list):
            return [
                self.tree(child, paths and below(paths, str(index)), name, pointed)
                for index, child in enumerate(value)
            ]
        return self._scalar(value, pointed)

    def _key(self, key: str) -> str:
        return self._visitor.leaf(key, protocol=_IDENTIFIER.fullmatch(key) is not None)

    def _text(self, value: str, name: str, pointed: str) -> str:
        if pointed:
            return self._visitor.pointed(pointed, value)
        return self._visitor.leaf(value, protocol=name in _PROTOCOL)

    def _scalar(self, value: Json, pointed: str) -> Json:
        if value is None or isinstance(value, bool):
            return value
        if pointed:
            return self._visitor.pointed(pointed, str(value))
        if self._numbers and isinstance(value, int):
            return self._visitor.number(value)
        return value
