"""Where the events of a stream keep the text of the answer, and how it grows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import msgspec

from contract.wire import NO_JSON, Growth, TextPaths, TextTable
from cutover.recognition.leaves import KINDS, LeafGroup, key_of

_REASONING = re.compile(r"reason(?!s?$|_code)|think|thought", re.IGNORECASE)
_TEXTS: Final = frozenset(
    {
        *("content", "text", "delta", "token", "answer", "message", "response", "chunk", "output"),
        *("reply", "completion", "generated_text", "data", "value", "body", "markdown"),
    }
)
"""Keys under which text commonly stands."""
_LABELS: Final = frozenset(
    {
        *KINDS,
        *("id", "role", "model", "name", "node", "created", "created_at", "timestamp", "time"),
        *("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason", "language"),
        *("author", "url", "uri", "title", "version", "format", "mime_type", "tool", "code"),
        *("arguments", "args", "input", "partial_json"),
    }
)
"""Keys whose values are no prose, however they vary."""
_IDS = re.compile(r"(?=[\w:./-]*\d)[\w:./-]{8,}", re.ASCII)
_SENTENCE = re.compile(r"\S\s+\S|[^\x00-\x7f]{4}")
_TWO, _LEAST_WHOLE = 2, 3
_FEW_PIECES = 5


@dataclass(frozen=True, slots=True)
class ProposedText:
    """A place where a text may stand: the name of its events, its path, and its pieces."""

    name: str
    path: str
    pieces: tuple[str, ...]

    @property
    def growth(self) -> Growth:
        """Whether each piece holds all before it."""
        first, last = self.pieces[0], self.pieces[-1]
        grows = all(after.startswith(before) for before, after in pairwise(self.pieces))
        # Of two pieces the second may begin like the first by chance.
        sure = len(self.pieces) > _TWO or len(first) >= _LEAST_WHOLE
        return "cumulative" if grows and sure and len(last) > len(first) else "delta"

    @property
    def whole(self) -> str:
        """The text at the end."""
        return self.pieces[-1] if self.growth == "cumulative" else "".join(self.pieces)

    @property
    def weight(self) -> int:
        """How likely it is the answer: its length counts threefold at a usual key."""
        return len(self.whole) * (3 if key_of(self.path) in _TEXTS else 1)

    @property
    def reasons(self) -> bool:
        """Whether it is called reasoning."""
        last = ".".join(self.path.rsplit(".", 2)[-2:])
        return bool(_REASONING.search(f"{self.name}.{last}"))


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of a stream: the answer, places that repeat it whole, reasoning, and others.

    `main` is None where no place looks like one.
    """

    main: ProposedText | None
    repeats: tuple[ProposedText, ...]
    reasoning: tuple[ProposedText, ...]
    others: tuple[ProposedText, ...]

    @property
    def growth(self) -> Growth:
        """How the answer grows."""
        return "delta" if self.main is None else self.main.growth

    def table(self) -> TextTable:
        """Return the dialect's table of texts."""
        if self.main is None:
            return {}
        table: TextTable = {self.main.name: self.main.path}
        for place in self.repeats:
            cumulative = TextPaths(path=place.path, growth="cumulative")
            table[place.name] = place.path if self.growth == "cumulative" else cumulative
        return table

    def reasoning_table(self) -> TextTable:
        """Return the dialect's table of reasoning."""
        return {
            place.name: place.path
            if place.growth == self.growth
            else TextPaths(path=place.path, growth=place.growth)
            for place in self.reasoning
        }

    def holds(self, name: str, path: str) -> bool:
        """Whether a text stands at a path in events of a name."""
        places = (*([self.main] if self.main else ()), *self.repeats, *self.reasoning)
        return any((place.name, place.path) == (name, path) for place in places)


def find_texts(groups: Mapping[str, LeafGroup], echoed: frozenset[str]) -> Texts:
    """Find the texts of a stream; `echoed` are texts of the request, likely no answer."""
    places = sorted(
        _places(groups), key=lambda place: (echoed.issuperset(place.pieces), -place.weight)
    )
    reasoning = _one_a_name(place for place in places if place.reasons)
    prose = [place for place in places if not place.reasons]
    if not prose:
        return Texts(None, (), reasoning, ())
    longest = prose[0].whole.strip()
    equal = [place for place in prose if place.whole.strip() == longest]
    # Of places that end in one text it is the one that grows: the others repeat the whole.
    main = max(equal, key=lambda place: len(place.pieces))
    repeats = _one_a_name(place for place in equal if place.name != main.name)
    others = [
        place
        for place in prose
        if place not in equal and key_of(place.path) in _TEXTS and _SENTENCE.search(place.whole)
    ]
    return Texts(main, repeats, reasoning, _one_a_name(others))


def _one_a_name(places: Iterable[ProposedText]) -> tuple[ProposedText, ...]:
    """Return the first place of each name."""
    found: dict[str, ProposedText] = {}
    for place in places:
        found.setdefault(place.name, place)
    return tuple(found.values())


def _places(groups: Mapping[str, LeafGroup]) -> Iterator[ProposedText]:
    for name, group in groups.items():
        for path in group.leaves:
            pieces = group.texts(path)
            if pieces and _is_prose(path, pieces):
                yield ProposedText(name, path, tuple(pieces))


def _is_prose(path: str, pieces: Sequence[str]) -> bool:
    key = key_of(path)
    if key in _LABELS or all(map(_IDS.fullmatch, pieces)):
        return False
    different = len(set(pieces))
    if len(pieces) > 1 and different == 1:
        return False
    if key not in _TEXTS and len(pieces) > _FEW_PIECES and 4 * different < len(pieces):
        return False  # a label of one of some values
    return not _is_json("".join(pieces))


def _is_json(text: str) -> bool:
    """Whether a text is a JSON object or array, as arguments of tools are."""
    try:
        return isinstance(msgspec.json.decode(text), dict | list)
    except NO_JSON:
        return False
