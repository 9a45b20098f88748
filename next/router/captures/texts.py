"""Stored texts taken apart: the strings in them, the streams they make, and edits to both."""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

DEEPEST = 200
"""Levels of JSON; what is nested deeper is searched as text."""
_LONG, _NAME = 1024, 18
_BASE64 = re.compile(r"[A-Za-z0-9+/=_-]+")
# Fields that tell streams within a stream apart, and those that name what a piece is of.
_IDS = frozenset(
    {"id", "index", "item_id", "output_index", "content_index", "summary_index", "message_id"}
    | {"messageId", "tool_call_id", "toolCallId", "call_id", "run_id"}
)
_CONTAINERS = frozenset({dict, list})
_TYPES = frozenset({"type", "event", "step", "kind"})
_PROTOCOL = _TYPES | {"role", "object", "status", "finish_reason", "code", "action", "model"}
_NO_PIECES = _IDS | _TYPES
_VARIABLE = re.compile(r"[|:].*|[-_.]?(?:\d|[0-9a-f]{8}).*", re.DOTALL)


class Edit(NamedTuple):
    """Characters `start` to `end` become `put`."""

    start: int
    end: int
    put: str


@dataclass(slots=True, eq=False)
class Spot:
    """A string in a stored text: `holder[key]`, or its name; `path` from the text's root.

    `marks` are the names of what it is part of and the ids around it.
    """

    holder: Any
    key: Any
    text: str
    path: tuple[str, ...]
    family: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    is_name: bool = False
    is_number: bool = False
    edits: tuple[Edit, ...] = ()

    @property
    def bare(self) -> bool:
        """Whether it is base64 and left alone."""
        text = self.text
        if len(text) < _LONG:
            return False
        return ";base64," in text[:128] or _BASE64.fullmatch(text) is not None

    @property
    def protocol(self) -> bool:
        """Whether it may be a word of a protocol: no name of a person is looked for there."""
        return self.is_name or self.path[-1] in _PROTOCOL

    def rewrite(self) -> None:
        """Put the edits into the JSON, or the pieces, that hold it."""
        text = applied(self.text, self.edits)
        if self.is_name:
            members = list(self.holder.items())
            self.holder.clear()
            self.holder.update((text if name == self.key else name, one) for name, one in members)
        else:
            self.holder[self.key] = int(text) if self.is_number and text.isdigit() else text


def applied(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits; of edits that overlap, the longest decides what is put."""
    merged: list[tuple[Edit, int]] = []
    for edit in sorted(set(edits)):
        length = edit.end - edit.start
        if merged and edit.start < merged[-1][0].end:
            last, longest = merged[-1]
            put = edit.put if length > longest and edit.put else last.put or edit.put
            end = max(last.end, edit.end)
            merged[-1] = Edit(last.start, end, put), max(longest, length)
        else:
            merged.append((edit, length))
    pieces: list[str] = []
    done = 0
    for (start, end, put), _ in merged:
        pieces += (text[done:start], put)
        done = end
    return "".join((*pieces, text[done:]))


# --- One stored text


class _Twice(ValueError):
    """A name stands twice in an object: a rewritten one would hold one of them."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Twice
    return found


def _verbatim(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


_decoder = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_verbatim, parse_constant=_verbatim, strict=False
)


def _json(text: str) -> list[Any]:
    """Return what is in a JSON text, fractions verbatim, in a list; [] for other texts."""
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return []  # a number may be a piece of a text
    try:
        return [_decoder.decode(text)]
    except (ValueError, RecursionError):
        return []


def _encoded(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(_without_surrogates(value)).decode()


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(one) for name, one in value.items()}
    return list(map(_without_surrogates, value)) if isinstance(value, list) else value


_LINES = re.compile(r"(\r\n|\r|\n)")


class StoredText:
    """One stored text: JSON, an SSE block with JSON or lines of text, or text.

    Paths of its strings begin with `root`.
    """

    def __init__(self, text: str, root: str = "") -> None:
        self.text = text
        self.spots: list[Spot] = []
        self._pieces, self._data = [text], [0]
        """The text in pieces, and where those are that hold its JSON, or the data of its lines."""
        family: tuple[str, ...] = ()
        marks = ("line",) if text.startswith(":") else ()  # a comment is no piece of a text
        lines: list[Spot] = []
        self._roots = _json(text)
        if self._roots:
            body = text.rstrip()
            self._pieces = [body, text[len(body) :]]
        elif text.startswith("data:") or "\ndata:" in text or "\rdata:" in text:
            lines, family, marks = self._split(root), self._event(), ()
            self._roots = _json("\n".join(self._pieces[at] for at in self._data))
        try:
            self._walk(self._roots, (root,), family, ())
        except RecursionError:
            self._roots, self.spots = [], []
        if not self._roots:
            self.spots = [
                Spot(self._pieces, at, self._pieces[at], (root, ""), family, marks)
                for at in self._data
            ]
        self.spots += lines

    def _split(self, root: str) -> list[Spot]:
        """Take an SSE block apart; return the lines that hold no data."""
        self._pieces, self._data, lines = [], [], []
        for line in _LINES.split(self.text):
            at = len(self._pieces)
            if line.startswith("data:"):
                head = "data: " if line.startswith("data: ") else "data:"
                self._data.append(at + 1)
                self._pieces += [head, line[len(head) :]]
            else:
                self._pieces.append(line)
                if line.strip():
                    place = (root, "", str(at))
                    lines.append(Spot(self._pieces, at, line, place, (line[:3],), ("line",)))
        return lines

    def _event(self) -> tuple[str, ...]:
        names = [one[len("event:") :] for one in self._pieces if one.startswith("event:")]
        return tuple([_VARIABLE.sub("", name.strip()) for name in names])

    def _walk(
        self, holder: Any, path: tuple[str, ...], family: tuple[str, ...], marks: tuple[str, ...]
    ) -> None:
        """Collect the spots in a container in order; raises `RecursionError` for one too deep."""
        if len(path) > DEEPEST:
            raise RecursionError
        named = isinstance(holder, dict)
        if named:
            for name, one in holder.items():
                if name in _IDS and isinstance(one, str | int):
                    marks = (*marks, f"{name}={one}")
                elif name in _TYPES and isinstance(one, str):
                    family = (*family, _VARIABLE.sub("", one))
                if not name.isidentifier() or len(name) > _NAME:
                    self.spots.append(Spot(holder, name, name, (*path, name), is_name=True))
        for key, one in holder.items() if named else enumerate(holder):
            place = path if holder is self._roots else (*path, str(key))
            kind = type(one)
            if kind is str:
                self.spots.append(Spot(holder, key, one, place, family, marks))
            elif kind is int:
                spot = Spot(holder, key, str(abs(one)), place, family, marks, is_number=True)
                self.spots.append(spot)
            elif kind in _CONTAINERS:
                self._walk(one, place, family, marks)

    def rewritten(self) -> str:
        """Return the text with the edits of its spots."""
        changed = [spot for spot in self.spots if spot.edits]
        if not changed:
            return self.text
        for spot in sorted(changed, key=lambda one: one.is_name):
            spot.rewrite()
        gone: set[int] = set()
        if self._roots:
            self._pieces[self._data[0]] = _encoded(self._roots[0])
            gone = {place for at in self._data[1:] for place in (at - 1, at, at + 1)}
        return "".join(piece for at, piece in enumerate(self._pieces) if at not in gone)


# --- Streams


class Track(NamedTuple):
    """Strings that belong together: equal ones, totals that grow, or pieces that make one text."""

    spots: Sequence[Spot]
    kind: Literal["equal", "totals", "pieces"]

    @property
    def text(self) -> str:
        """The whole text."""
        if self.kind == "pieces":
            return "".join(one.text for one in self.spots)
        return self.spots[-1].text

    def spread(self, edits: Sequence[Edit]) -> None:
        """Put edits of the whole text on its strings: what is put goes where the value ends."""
        start = 0
        for spot in self.spots if edits else ():
            end = start + len(spot.text)
            for edit in edits:
                if edit.start < end and edit.end > start:
                    put = edit.put if edit.end <= end else ""
                    cut = Edit(max(edit.start, start) - start, min(edit.end, end) - start, put)
                    spot.edits = (*spot.edits, cut)
            start = end if self.kind == "pieces" else start


def equal_tracks(texts: Iterable[StoredText]) -> Iterator[Track]:
    """Yield every string once, with those that are equal and at the same place in other texts."""
    equal: dict[Hashable, list[Spot]] = {}
    for text in texts:
        for spot in text.spots:
            same = spot.path, spot.text, spot.is_name, spot.is_number
            equal.setdefault(same, []).append(spot)
    return (Track(spots, "equal") for spots in equal.values())


def joined_tracks(texts: Sequence[StoredText]) -> Iterator[Track]:
    """Yield the strings that may be pieces of one text, by place, by kind and by the ids around.

    A provider may number its pieces anew, or send two texts at once: each way of joining finds
    what another one misses.
    """
    ways: tuple[Callable[[Spot], Hashable], ...] = (
        lambda one: (one.family, one.marks, one.path),
        lambda one: (one.family, one.path),
        lambda one: _anywhere(one.path),
    )
    places: dict[Hashable, list[Spot]] = {}
    for text in texts:
        for spot in text.spots:
            if not (spot.is_name or spot.is_number or spot.marks == ("line",) or not spot.text):
                places.setdefault(ways[-1](spot), []).append(spot)
    for place in places.values():
        seen: set[tuple[int, ...]] = set()
        if place[0].path[-1] in _NO_PIECES or all(one.text == place[0].text for one in place):
            continue
        for way in ways:
            groups: dict[Hashable, list[Spot]] = {}
            for spot in place:
                groups.setdefault(way(spot), []).append(spot)
            for group in groups.values():
                same = tuple(map(id, group))
                if len(group) > 1 and same not in seen:
                    seen.add(same)
                    yield from _readings(group)


@lru_cache(4096)
def _anywhere(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return a path without places in lists."""
    return tuple("*" if step.isdigit() else step for step in path)


def _readings(group: list[Spot]) -> Iterator[Track]:
    """Yield a group as pieces and, where most strings go on from the one before, as totals."""
    chains: list[list[Spot]] = [[]]
    for spot in group:
        if chains[-1] and not spot.text.startswith(chains[-1][-1].text):
            chains.append([])
        chains[-1].append(spot)
    if len(chains) * 2 <= len(group):
        yield from (Track(chain, "totals") for chain in chains if len(chain) > 1)
    if len(chains) > 1 or len(group) == 2:  # noqa: PLR2004 - two may be either
        yield Track(group, "pieces")


# --- As it is read


@lru_cache(1 << 16)
def _plain(character: str) -> str:
    """Return the ASCII that a character is another way to write, such as a full-width digit."""
    normal = unicodedata.normalize("NFKC", character)
    if len(normal) == 1 and normal.isascii():
        return normal
    digit = unicodedata.decimal(character, None)
    return character if digit is None else str(digit)


_ESCAPED = re.compile(
    r'\\+u[0-9a-fA-F]{4}|\\+["\\/bfnrt]|%[0-7][0-9a-fA-F]|[\u00ad\u200b-\u200f\u2060\ufeff]'
)
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class View:
    """A text as people read it: escapes of JSON and URLs undone, compatible characters in ASCII."""

    def __init__(self, text: str) -> None:
        pieces: list[str] = []
        self._views, self._sources, length, done = [0], [0], 0, 0
        escaped = "\\" in text or "%" in text or not text.isascii()
        for found in _ESCAPED.finditer(text) if escaped else ():
            read = _read(found[0])
            pieces += (text[done : found.start()], read)
            length += found.start() - done
            done = found.end()
            self._views += (length, length + len(read))
            self._sources += (found.start(), done)
            length += len(read)
        self.text = "".join((*pieces, text[done:]))
        if not self.text.isascii():
            self.text = "".join(map(_plain, self.text))

    def source(self, at: int) -> int:
        """Return where a place in the view is in the text."""
        mark = bisect_right(self._views, at) - 1
        return self._sources[mark] + at - self._views[mark]


def _read(token: str) -> str:
    if token[0] == "%":
        return chr(int(token[1:], 16))
    if token[0] != "\\":
        return ""
    token = token.lstrip("\\")
    if token[:1] == "u":
        return chr(int(token[1:], 16))
    return _LETTERS.get(token, token or "\\")
