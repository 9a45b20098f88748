"""Two passes over an exchange's JSON: learn every value first, then write pseudonyms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from router.capture.redaction.dictionary import Dictionary
from router.capture.redaction.texts import (
    Edit,
    applied,
    chains,
    over_deltas,
    over_prefixes,
    searchable,
)
from router.config import Patterns

Json: TypeAlias = Any
Paths: TypeAlias = tuple[tuple[str, ...], ...]

_ANY = "*"
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")
# Words of a protocol, not of a person: no name found at a path is looked for here.
_PROTOCOL = frozenset(
    {"action", "code", "error", "finish", "kind", "relation", "role", "state", "status", "step"}
    | {"tool_choice", "type"}
)


def split_paths(paths: Iterable[str]) -> Paths:
    """Split dotted paths into their steps."""
    return tuple(tuple(path.split(".")) for path in paths)


def below(paths: Paths, *steps: str) -> Paths:
    """Return what is left of the paths that lead along `steps`."""
    for step in steps:
        paths = tuple(path[1:] for path in paths if path and path[0] in (step, _ANY))
    return paths


def reachable(paths: Paths, raw: bytes) -> Paths:
    """Return the paths that could lead somewhere in JSON: the names along them occur in it."""
    if not paths or b"\\" in raw:  # a name may be written in escapes
        return paths
    return tuple(
        path
        for path in paths
        if all(step == _ANY or step.isdigit() or step.encode() in raw for step in path)
    )


class Learn:
    """Puts what patterns find and paths lead to into the dictionary; changes nothing.

    Without a pattern that could match, only the values at paths are learned.
    """

    def __init__(self, dictionary: Dictionary, patterns: Patterns) -> None:
        self._dictionary = dictionary
        self._patterns = patterns
        self._seen: set[str] = set()

    def concerned(self, raw: bytes, paths: Paths, texts: Sequence[str] = ()) -> bool:
        """Whether a path leads into these bytes of JSON, or a pattern could match.

        `texts` are what pieces in them make when joined.
        """
        if paths or not self._patterns:
            return bool(paths)
        return b"\\u" in raw or bool(
            self._patterns.possible(b" ".join([raw, *map(searchable, texts)]))
        )

    def leaf(self, text: str, *, protocol: bool) -> str:
        """Learn from a text."""
        del protocol
        if self._patterns and text not in self._seen:
            self._seen.add(text)
            self._dictionary.learn(text)
        return text

    def number(self, value: int) -> int | str:
        """Learn from a number's digits."""
        self.leaf(str(value), protocol=False)
        return value

    def pointed(self, name: str, value: str) -> str:
        """Learn a value that a path leads to."""
        self._dictionary.learn_value(name, value)
        return value

    def deltas(self, pieces: Sequence[str]) -> list[str]:
        """Learn from pieces that make a text when joined."""
        self.leaf("".join(pieces), protocol=False)
        return list(pieces)

    def prefixes(self, pieces: Sequence[str]) -> list[str]:
        """Learn from pieces each of which is the beginning of the next: from the longest."""
        for chain in chains(pieces):
            self.leaf(chain[-1], protocol=False)
        return list(pieces)


class Rewrite:
    """Writes pseudonyms."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary

    def concerned(self, raw: bytes, paths: Paths, texts: Sequence[str] = ()) -> bool:
        """Whether a known value, or the beginning of one, could stand there."""
        del paths
        possible = self._dictionary.possible
        return possible(raw) or any(possible(searchable(text)) for text in texts)

    def leaf(self, text: str, *, protocol: bool) -> str:
        """Rewrite a text; `protocol` where a word of a protocol may stand."""
        if not self._dictionary.inside(text):
            return text
        return applied(text, self._dictionary.edits(text, given=not protocol))

    def number(self, value: int) -> int | str:
        """Rewrite a number as a whole, if anything in it has to go."""
        text = str(value)
        found = self._dictionary.edits(text)
        return self._dictionary.pseudonym("number", text) if found else value

    def pointed(self, name: str, value: str) -> str:
        """Return the value's pseudonym."""
        return self._dictionary.pseudonym(name, value) if value else value

    def deltas(self, pieces: Sequence[str]) -> list[str]:
        """Rewrite the joined text and spread it over the pieces again."""
        return over_deltas(pieces, self._stream_edits("".join(pieces)))

    def prefixes(self, pieces: Sequence[str]) -> list[str]:
        """Rewrite the longest of each chain, the others as far as they go."""
        return [
            piece
            for chain in chains(pieces)
            for piece in over_prefixes(chain, self._stream_edits(chain[-1]))
        ]

    def _stream_edits(self, text: str) -> list[Edit]:
        edits = self._dictionary.edits(text)
        whole = edits[-1].end if edits else 0
        tail = max(self._dictionary.tail(text), whole)
        return [*edits, Edit(tail, len(text), "")] if tail < len(text) else edits


Pass: TypeAlias = Learn | Rewrite


def walk(
    value: Json,
    paths: Paths,
    treatment: Pass,
    name: str = "",
    pointed: str = "",
    *,
    numbers: bool = False,
) -> Json:
    """Return a tree of JSON with its leaves treated.

    `name` is the key it stands under, `pointed` the key a path led to on the way; `numbers` where
    whole numbers are a person's own.
    """
    if () in paths:
        pointed = pointed or name or "value"
    if isinstance(value, dict):
        return {
            treatment.leaf(key, protocol=_IDENTIFIER.fullmatch(key) is not None): walk(
                child, paths and below(paths, key), treatment, key, pointed, numbers=numbers
            )
            for key, child in value.items()
        }
    if isinstance(value, list):
        return [
            walk(child, paths and below(paths, str(at)), treatment, name, pointed, numbers=numbers)
            for at, child in enumerate(value)
        ]
    if value is None or isinstance(value, bool):
        return value
    if pointed:
        return treatment.pointed(pointed, str(value))
    if isinstance(value, str):
        return treatment.leaf(value, protocol=name in _PROTOCOL)
    return treatment.number(value) if numbers and isinstance(value, int) else value
