"""The two passes over an exchange: learn every value first, then write pseudonyms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from router.capture.redaction import (
    halves,
)
from router.capture.redaction.dictionary import (
    Dictionary,
)
from router.capture.redaction.edits import (
    Edit,
    applied,
    chains,
    over_deltas,
    over_prefixes,
)
from router.capture.redaction.places import (
    Paths,
    Visitor,
)
from router.config import Patterns


class Pass(Visitor, Protocol):
    """A visitor that also treats texts sent in pieces."""

    def concerned(self, raw: bytes, paths: Paths, texts: Sequence[str] = ()) -> bool:
        """Whether there is anything to do in these bytes of JSON.

        `paths` lead into them; `texts` are what pieces in them make when joined.
        """
        ...

    def deltas(self, pieces: Sequence[str]) -> list[str]:
        """Treat pieces that make a text when joined."""
        ...

    def prefixes(self, pieces: Sequence[str]) -> list[str]:
        """Treat pieces that grow, each the beginning of the next."""
        ...


class Learn:
    """Puts what it finds into the dictionary and leaves everything as it is."""

    def __init__(self, dictionary: Dictionary, patterns: Patterns) -> None:
        self._dictionary = dictionary
        self._patterns = patterns
        self._seen: set[str] = set()

    def concerned(self, raw: bytes, paths: Paths, texts: Sequence[str] = ()) -> bool:
        """Whether a path leads there or a pattern could match."""
        if paths or (self._patterns and b"\\u" in raw):
            return True
        return bool(self._patterns.possible(b" ".join([raw, *map(halves.raw, texts)])))

    def leaf(self, text: str, *, protocol: bool) -> str:
        """Learn from a text."""
        del protocol
        if text not in self._seen:
            self._seen.add(text)
            self._dictionary.learn(text)
        return text

    def number(self, value: int) -> int | str:
        """Learn from a number's digits."""
        self._dictionary.learn(str(value))
        return value

    def pointed(self, name: str, value: str) -> str:
        """Learn the value itself."""
        self._dictionary.give(name, value)
        return value

    def deltas(self, pieces: Sequence[str]) -> list[str]:
        """Learn from the joined text."""
        self._dictionary.learn("".join(pieces))
        return list(pieces)

    def prefixes(self, pieces: Sequence[str]) -> list[str]:
        """Learn from the longest of each chain."""
        for chain in chains(pieces):
            self._dictionary.learn(chain[-1])
        return list(pieces)


class Point(Learn):
    """Learns only the values paths lead to."""

    def concerned(self, raw: bytes, paths: Paths, texts: Sequence[str] = ()) -> bool:
        """Whether a path leads there."""
        del raw, texts
        return bool(paths)

    def leaf(self, text: str, *, protocol: bool) -> str:
        """Pass over a text no path leads to."""
        del protocol
        return text

    def number(self, value: int) -> int | str:
        """Pass over a number no path leads to."""
        return value

    def deltas(self, pieces: Sequence[str]) -> list[str]:
        """Pass over a stream."""
        return list(pieces)

    def prefixes(self, pieces: Sequence[str]) -> list[str]:
        """Pass over a stream."""
        return list(pieces)


class Rewrite:
    """Writes pseudonyms."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary

    def concerned(self, raw: bytes, paths: Paths, texts: Sequence[str] = ()) -> bool:
        """Whether a known value, or the beginning of one, could stand there."""
        del paths
        return self._dictionary.possible(raw) or any(
            self._dictionary.possible(halves.raw(text)) for text in texts
        )

    def leaf(self, text: str, *, protocol: bool) -> str:
        """Rewrite a text."""
        if not self._dictionary.inside(text):
            return text
        return applied(text, self._dictionary.edits(text, given=not protocol))

    def number(self, value: int) -> int | str:
        """Rewrite a number as a whole, if anything in it has to go."""
        text = str(value)
        found = self._dictionary.edits(text)
        return self._dictionary.pseudonym("number", text) if found else value

    def pointed(self, name: str, value: str) -> str:
        """Give the value's pseudonym."""
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
