"""Stored texts taken apart: the strings in them, the streams they make, and edits to both."""

import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

_LONG, _NAME = 1024, 18
_BASE64 = re.compile(r"[A-Za-z0-9+/=_-]+")
# Fields that tell streams within a stream apart, and those that name what a piece is of.
_IDS = frozenset(
    {"id", "index", "item_id", "output_index", "content_index", "summary_index", "message_id"}
    | {"messageId", "tool_call_id", "toolCallId", "call_id", "run_id"}
)
_TYPES = frozenset({"type", "event", "step", "kind"})
_PROTOCOL = _TYPES | {"role", "object", "status", "finish_reason", "code", "action", "model"}
_NO_PIECES = _IDS | _TYPES
_VARIABLE = re.compile(r"[|:].*|[-_.]?(?:\d|[0-9a-f]{8}).*", re.DOTALL)
_LINE = ("line",)
"""Marks of a line that is no piece of a text, such as a comment or an event's name."""


class Edit(NamedTuple):
    """Characters `start` to `end` become `put`."""

    start: int
    end: int
    put: str


@dataclass(slots=True, eq=False)
class Spot:
    """A string, a name or a whole number in a stored text, where it begins, as it is written there.

    `path` leads there from the text's root. `family` names what it is part of, `marks` are the ids
    around it.
    """

    text: str
    start: int
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


def applied(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits; of those that overlap, the longest that puts something decides."""
    groups: list[list[Edit]] = []
    end = 0
    for edit in sorted(set(edits)):
        if edit.start >= end:
            groups.append([])
        groups[-1].append(edit)
        end = max(end, edit.end)
    pieces: list[str] = []
    done = 0
    for group in groups:
        decides = max(group, key=lambda one: (one.put != "", one.end - one.start))
        pieces += (text[done : group[0].start], decides.put)
        done = max(one.end for one in group)
    return "".join((*pieces, text[done:]))


# --- One stored text


_TOKEN = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"|([0-9][0-9.eE+-]*)|NaN|Infinity', re.DOTALL)
_DATA = re.compile(r"(?:\A|(?<=[\r\n]))data:")
_LINES = re.compile(r"(?:\A|(?<=[\r\n]))(data: ?)?([^\r\n]+)")
_decoder = json.JSONDecoder(strict=False)


def _blank(line: re.Match[str]) -> str:
    """Return the data of a line of SSE, at its place; other lines are blank."""
    return " " * len(line[1]) + line[2] if line[1] else " " * len(line[2])


class StoredText:
    """One stored text: JSON, an SSE block with JSON or lines of text, or text.

    Paths of its strings begin with `root`. Edits go into the text as it is written: fractions,
    escapes and the order of names stay.
    """

    def __init__(self, text: str, root: str = "") -> None:
        self.text = text
        self.spots: list[Spot] = []
        family: tuple[str, ...] = ()
        # A comment is no piece of a text.
        lines = [Spot(text, 0, (root, ""), (), _LINE if text.startswith(":") else ())]
        if _DATA.search(text):
            found = list(_LINES.finditer(text))
            names = [one[2].removeprefix("event:") for one in found if one[2].startswith("event:")]
            family = tuple([_VARIABLE.sub("", name.strip()) for name in names])
            lines = [
                Spot(one[2], one.start(2), (root, ""), family, () if one[1] else _LINE)
                for one in found
            ]
            text = _LINES.sub(_blank, text)
        if self._is_json(text, root, family):
            self.spots += [one for one in lines if one.marks]
        else:
            self.spots = lines

    def _is_json(self, text: str, root: str, family: tuple[str, ...]) -> bool:
        """Collect the spots of a text that is JSON, in order; return whether it is."""
        if text.lstrip()[:1] not in {"{", "[", '"'}:
            return False  # a number may be a piece of a text
        tokens = _TOKEN.finditer(text)
        try:
            self._walk(_decoder.decode(text), tokens, (root,), family, ())
        except (ValueError, RecursionError):
            return False
        return next(tokens, None) is None  # of an object that has a name twice, some are left

    def _walk(
        self,
        value: Any,
        tokens: Iterator[re.Match[str]],
        path: tuple[str, ...],
        family: tuple[str, ...],
        marks: tuple[str, ...],
    ) -> None:
        """Add the spots of a value, whose names, strings and numbers are the next tokens."""
        if isinstance(value, dict):
            for name, one in value.items():
                if name in _IDS and isinstance(one, str | int):
                    marks = (*marks, f"{name}={one}")
                elif name in _TYPES and isinstance(one, str):
                    family = (*family, _VARIABLE.sub("", one))
            for name, one in value.items():
                token, place = next(tokens), (*path, name)
                if not name.isidentifier() or len(name) > _NAME:
                    self.spots.append(Spot(token[1], token.start(1), place, is_name=True))
                self._walk(one, tokens, place, family, marks)
        elif isinstance(value, list):
            for at, one in enumerate(value):
                self._walk(one, tokens, (*path, str(at)), family, marks)
        elif isinstance(value, str):
            token = next(tokens)
            self.spots.append(Spot(token[1], token.start(1), path, family, marks))
        elif isinstance(value, float):
            next(tokens)
        elif value is not None and not isinstance(value, bool):
            token = next(tokens)
            self.spots.append(Spot(token[2], token.start(2), path, family, marks, is_number=True))

    def rewritten(self) -> str:
        """Return the text with the edits of its spots."""
        return applied(
            self.text,
            (
                Edit(spot.start + edit.start, spot.start + edit.end, edit.put)
                for spot in self.spots
                for edit in spot.edits
            ),
        )


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
            if not (spot.is_name or spot.is_number or spot.marks == _LINE or not spot.text):
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
    """Return a path without places in lists; a text in parts stands where a text does."""
    steps = tuple("*" if step.isdigit() else step for step in path)
    return steps[:-2] if steps[-2:] == ("*", "text") else steps


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


_INVISIBLE = r"[\u00ad\u200b-\u200f\u2060\ufeff]"
_ESCAPED = re.compile(
    r"\\+u[dD][89abAB][0-9a-fA-F]{2}\\+u[dD][c-fC-F][0-9a-fA-F]{2}|\\+u[0-9a-fA-F]{4}"
    rf'|\\+["\\/bfnrt]|%[0-7][0-9a-fA-F]|{_INVISIBLE}'
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
    if len(halves := re.split(r"\\+u", token)) > 1:  # two of them are one character
        units = b"".join(int(half, 16).to_bytes(2) for half in halves[1:])
        return re.sub(_INVISIBLE, "", units.decode("utf-16-be", "surrogatepass"))
    token = token.lstrip("\\")
    return _LETTERS.get(token, token or "\\")
