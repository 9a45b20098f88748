"""Paths into JSON: `choices[*].delta.content`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

Path = tuple[str, ...]
"""Keys, and indices of lists as digits; `ANY` stands for every one of them."""

ANY: Final = "*"
ANY_DEPTH: Final = "**"
"""Of rules: any number of steps."""
_BRACKETS = re.compile(r"\[(\d*|\*)\]")
_INDICES = r"(?:\[(?:\d*|\*)\])"
_STEP = rf"[^.\[\]]+{_INDICES}*"
_SOUND = re.compile(rf"(?:{_STEP}|{_INDICES}+)(?:\.{_STEP})*")


@lru_cache(maxsize=256)
def path_of(text: str) -> Path:
    """Cut `a.b`, `a[0].b`, `a[*].b` (also `a[].b`, as reports write it) and `a.*.b` into steps."""
    dotted = _BRACKETS.sub(lambda found: f".{found[1] or ANY}", text)
    return tuple(step for step in dotted.split(".") if step)


def path_fault(text: str) -> str | None:
    """Describe where a path cannot be read, and what is due there; None of a valid one."""
    found = _SOUND.match(text)
    rest = text[found.end() if found else 0 :]
    if found and not rest:
        return None
    if not rest:
        return "a path is due, such as 'a.b' or 'a[*].b'"
    at = len(text) - len(rest) + 1
    match rest[0]:
        case "[" | "]":
            due = "brackets hold an index, '*' or nothing: a[0], a[*], a[]"
        case ".":
            due = "a key is due before and behind a dot, and indices follow their key: a.b[0].c"
        case _:
            due = "a dot is due behind brackets: a[0].b"
    return f"{text!r} is no path from character {at} on, {rest!r}: {due}"


Branches = dict[str, "Branches | None"]
"""Paths joined to a tree; None where one ends."""


def paths_of(places: str | Sequence[str]) -> tuple[Path, ...]:
    """Cut one path or several."""
    return tuple(path_of(text) for text in ([places] if isinstance(places, str) else places))


def values_at(value: Any, path: Path) -> Iterator[Any]:
    """Yield what stands at a path, in order."""
    if not path:
        yield value
        return
    for key in _keys(value, path[0]):
        yield from values_at(value[key], path[1:])


def places_at(value: Any, path: Path) -> Iterator[tuple[str | int, ...]]:
    """Yield where a path leads to text, step by step: keys, and indices of lists."""
    at: list[str | int] = []
    for number, step in enumerate(path):
        if step == ANY:
            for key in _keys(value, ANY):
                for rest in places_at(value[key], path[number + 1 :]):
                    yield (*at, key, *rest)
            return
        if isinstance(value, dict) and step in value:
            at.append(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            at.append(int(step))
        else:
            return
        value = value[at[-1]]
    if isinstance(value, str):
        yield tuple(at)


def _anything(_: object) -> bool:
    return True


def take(
    value: Any,
    path: Path,
    fits: Callable[[Any], bool] = _anything,
) -> list[Any]:
    """Take what stands at a path out of a value, and every holder that empties; in order."""
    if len(path) == 1 and path[0] != ANY and isinstance(value, dict):
        # The usual path is one key.
        return [value.pop(path[0])] if path[0] in value and fits(value[path[0]]) else []
    if not path:
        return []
    taken: list[Any] = []
    emptied: list[Any] = []
    for key in _keys(value, path[0]):
        child = value[key]
        if len(path) == 1:
            if fits(child):
                taken.append(child)
                emptied.append(key)
            continue
        found = take(child, path[1:], fits)
        taken += found
        if found and not child:
            emptied.append(key)
    # From behind: the indices of a list move up when one is taken out.
    for key in reversed(emptied):
        del value[key]
    return taken


def drop(value: Any, branches: Branches) -> None:
    """Take out of a value all that stands at many paths, and every holder that empties."""
    steps = sorted(branches.items(), key=_index) if isinstance(value, list) else branches.items()
    for step, below in steps:
        # From behind: the indices of a list move up when one is taken out.
        for key in reversed(_keys(value, step)):
            if below is None:
                del value[key]
                continue
            child = value[key]
            if child and isinstance(child, dict | list):
                drop(child, below)
                if not child:
                    del value[key]


def _index(branch: tuple[str, object]) -> int:
    """Order the steps into a list from its end on, and those into all items behind them."""
    return -int(branch[0]) if branch[0].isdecimal() else 1


def branches_of(paths: Iterable[Path]) -> Branches:
    """Join paths that begin alike, so that a value is walked through once."""
    branches: Branches = {}
    for path in paths:
        here = branches
        for step in path[:-1]:
            below = here.setdefault(step, {})
            if below is None:
                break  # what stands above is taken out already
            here = below
        else:
            here[path[-1]] = None
    return branches


def _keys(value: object, step: str) -> Sequence[Any]:
    if isinstance(value, dict):
        if step == ANY:
            return tuple(value)
        return (step,) if step in value else ()
    if isinstance(value, list):
        if step == ANY:
            return range(len(value))
        return (int(step),) if step.isdecimal() and int(step) < len(value) else ()
    return ()


def without_nulls(value: Any) -> Any:
    """Return a value without its nulls."""
    if isinstance(value, dict):
        return {key: without_nulls(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [without_nulls(child) for child in value if child is not None]
    return value


def without_empties(value: Any) -> Any:
    """Return a value without empty objects and lists, and without those that empties."""
    if isinstance(value, dict):
        kept = {key: without_empties(child) for key, child in value.items()}
        return {key: child for key, child in kept.items() if not _is_empty(child)}
    if isinstance(value, list):
        return [child for child in map(without_empties, value) if not _is_empty(child)]
    return value


def _is_empty(value: object) -> bool:
    return isinstance(value, dict | list) and not value
