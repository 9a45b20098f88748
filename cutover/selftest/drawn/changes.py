"""Kinds of change: what can be wrong with one value, and where in a struct it is put."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")
Place = tuple[str | int, ...]
"""Keys and indices that lead into a value."""

_DIGITS = re.compile(r"\d+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
ADDED: Final = "（补充）"

_TEXTS: Mapping[str, Callable[[str], str]] = {
    "white space at the end": lambda it: f"{it} ",
    "line end at the start": lambda it: f"\n{it}",
    "no-break space": lambda it: it.replace(" ", "\u00a0", 1),
    "zero-width space": lambda it: f"{it[: len(it) // 2]}\u200b{it[len(it) // 2 :]}",
    "another date": lambda it: _DATE.sub("2031-01-09", it, count=1),
    "another number": lambda it: _DIGITS.sub(lambda m: str(int(m[0]) + 1), it, count=1),
    "other wording": lambda it: f"{it[: len(it) // 2]}不{it[len(it) // 2 + 1 :]}",
    "missing": lambda _: "",
    "added": lambda it: it + ADDED,
    "doubled": lambda it: it + it,
    "reordered": lambda it: it[len(it) // 2 :] + it[: len(it) // 2],
    "truncated": lambda it: it[:-1],
    "other case": str.swapcase,
    "first line lost": lambda it: it.split("\n", 1)[1] if "\n" in it else it,
    "lines reordered": lambda it: "\n".join(it.split("\n")[::-1]),
}
_NUMBERS: Mapping[str, Callable[[Any], Any]] = {
    "one more": lambda it: it + 1,
    "ten times": lambda it: it * 10,
    "zero": lambda _: 0,
    "halved": lambda it: it / 2 if isinstance(it, float) else it // 2,
}
_LISTS: Mapping[str, Callable[[list[Any]], list[Any]]] = {
    "first missing": lambda it: it[1:],
    "last missing": lambda it: it[:-1],
    "first doubled": lambda it: [*it[:1], *it],
    "reordered": lambda it: it[::-1],
    "emptied": lambda _: [],
}


class ValueChange(msgspec.Struct, frozen=True):
    """What is done to a text (`name`), to a number and to a list (`items`)."""

    name: str
    number: str
    items: str


def draw_change(draw: Random) -> ValueChange:
    """Draw what is done to a text, a number or a list, whichever stands at the place."""
    return ValueChange(*(draw.choice(list(kinds)) for kinds in (_TEXTS, _NUMBERS, _LISTS)))


@dataclass
class Spoiler:
    """Changes one place of every value it is given; the first value decides which.

    `at` in [0, 1) chooses among the places the first value has. `fired` becomes true once a value
    has really become another: a change that fits nothing there is no fault. `within` and `without`
    are the beginnings of the paths that may, or may not, be changed; "" or none: all may.
    """

    change: ValueChange
    at: float
    within: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    fired: bool = False
    what: str = ""
    _path: str | None = field(default=None, init=False)

    def spoil(self, value: T) -> T:
        """Return a value with one place changed, or as it is where the place is not in it."""
        plain = msgspec.json.decode(msgspec.json.encode(value))
        places = [place for place in _places(plain) if self._changes(plain, place)]
        places = [it for it in places if self._allowed(_general(it))]
        if not places:
            return value
        if self._path is None:
            paths = list(dict.fromkeys(map(_general, places)))
            self._path = paths[int(self.at * len(paths))]
        place = next((it for it in places if _general(it) == self._path), None)
        if place is None:
            return value
        made = _struct(_put(plain, place, self._changed(_get(plain, place))), value)
        if made == value:
            return value
        self.fired, self.what = True, self._path
        return made

    def _allowed(self, path: str) -> bool:
        return path.startswith(self.within or "") and not path.startswith(self.without or ("\0",))

    def _changes(self, plain: object, place: Place) -> bool:
        before = _get(plain, place)
        return bool(self._changed(before) != before)

    def _changed(self, value: Any) -> Any:
        match value:
            case bool():
                return not value
            case str():
                return _TEXTS[self.change.name](value)
            case int() | float():
                return _NUMBERS[self.change.number](value)
            case list():
                return _LISTS[self.change.items](value)
            case _:
                return value


def _struct(plain: object, like: T) -> T:
    try:
        made: T = msgspec.json.decode(msgspec.json.encode(plain), type=type(like))
    except (msgspec.DecodeError, ValueError):
        return like  # the type forbids it
    return made


def _places(value: object, before: Place = ()) -> Iterator[Place]:
    """Yield every place of a value, outer ones first."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*before, key)
            yield from _places(item, (*before, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _places(item, (*before, index))


def _general(place: Place) -> str:
    return ".".join("[]" if isinstance(step, int) else step for step in place)


def _get(value: Any, place: Place) -> Any:
    for step in place:
        value = value[step]
    return value


def _put(value: Any, place: Place, item: object) -> Any:
    """Return a copy of a value with another item at a place."""
    if not place:
        return item
    step, *rest = place
    copy = value.copy()
    copy[step] = _put(value[step], tuple(rest), item)
    return copy
