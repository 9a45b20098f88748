"""One exchange's dictionary: every value found in it, and its pseudonym."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator
from typing import NamedTuple

from router.capture.redaction.texts import Edit, View, quoted, views
from router.config import PatternMatch, Patterns

_DIGITS = 12
PSEUDONYM = re.compile(rf"<[a-z][a-z0-9_]{{0,31}}:[0-9a-f]{{{_DIGITS}}}>")
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")
_WORD = re.compile(r"\w")
_ASCII_WORD = re.compile(r"[A-Za-z0-9_]")
# Characters JSON may write in another way: a value with one is not found by its plain bytes.
_OTHERWISE_WRITTEN = re.compile(r'["\\/\x00-\x1f\x7f]')
_SHORT = 4


def digest(key: bytes, value: str) -> str:
    """Return the digest of a value in its pseudonym."""
    return hmac.new(key, value.encode("utf-8", "surrogatepass"), "sha256").hexdigest()[:_DIGITS]


class _Known(NamedTuple):
    """A value's kind, whether a path led to it, and its first bytes in JSON."""

    name: str
    given: bool
    raw: bytes | None


class Dictionary:
    """Learns values first, then returns the edits that replace each by a keyed pseudonym.

    Values found by a pattern are removed wherever they stand. Values found at a path (names,
    mostly) are removed at word boundaries, never as part of a longer word, and not where they
    are the word of a protocol (`{"role": "user"}` stays when a person is called user).
    """

    def __init__(self, key: bytes, patterns: Patterns) -> None:
        self._key = key
        self._patterns = patterns
        self._known: dict[str, _Known] = {}
        self._literals: dict[bool, re.Pattern[str] | None] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def learn(self, text: str) -> None:
        """Learn what the patterns find in a text."""
        for view in views(text):
            found = _outside_pseudonyms(view.text, self._patterns.matches(view.text))
            for match in (*found, *_joined(found)):
                self._add(match.name, view.text[match.start : match.end], given=False)

    def learn_value(self, name: str, value: str) -> None:
        """Learn a value that a path leads to."""
        if value and not PSEUDONYM.fullmatch(value):
            found = next(
                (m for m in self._patterns.matches(value) if m.end - m.start == len(value)), None
            )
            self._add(found.name if found else name, value, given=found is None)

    def pseudonym(self, name: str, value: str) -> str:
        """Return the pseudonym of a value: `<email:3f9a1c…>`, equal for equal values."""
        if PSEUDONYM.fullmatch(value):
            return value
        known = self._known.get(value)
        return f"<{known.name if known else name}:{digest(self._key, value)}>"

    def possible(self, raw: bytes) -> bool:
        """Whether a known value, or enough of its beginning, could stand in these bytes of JSON."""
        if not self._known:
            return False
        if b"\\u" in raw or b"\\\\" in raw:
            return True
        return any(known.raw is None or known.raw in raw for known in self._known.values())

    def inside(self, text: str) -> bool:
        """Whether a known value could stand in a text."""
        return "\\" in text or any(value in text for value in self._known)

    def edits(self, text: str, *, given: bool = True) -> list[Edit]:
        """Return the edits of a text; with `given` off, values given by paths may stay."""
        found = [edit for view in views(text) for edit in self._view_edits(view, given=given)]
        return list(self._merged(text, sorted(found)))

    def tail(self, text: str) -> int:
        """Return where a known value begins that the end of a text cuts off, or its length.

        Half of the value and four characters at least are there.
        """
        starts = [len(text)]
        for value in self._known:
            for length in range(len(value) - 1, _least(value) - 1, -1):
                if text.endswith(value[:length]):
                    starts.append(len(text) - length)
                    break
        return min(starts)

    def _add(self, name: str, value: str, *, given: bool) -> None:
        if value not in self._known:
            start = value[: _least(value)].encode("utf-8", "surrogatepass")
            raw = None if _OTHERWISE_WRITTEN.search(value) else start
            self._known[value] = _Known(name, given, raw)
            self._literals.clear()

    def _view_edits(self, view: View, *, given: bool) -> Iterator[Edit]:
        if view.kind == "key" and _IDENTIFIER.fullmatch(view.text):
            given = False
        found = [
            *self._patterns.matches(view.text),
            *self._literal_matches(view.text, given=given),
        ]
        matches = _joined(_outside_pseudonyms(view.text, found))
        if view.kind == "number":
            if matches:
                pseudonym = self.pseudonym(matches[0].name, view.text)
                yield Edit(view.at[0], view.at[-1], quoted(pseudonym, view.depth))
            return
        for start, end, name in matches:
            yield Edit(view.at[start], view.at[end], self.pseudonym(name, view.text[start:end]))

    def _literal_matches(self, text: str, *, given: bool) -> Iterator[PatternMatch]:
        if not any(value in text for value in self._known):
            return
        expression = self._literal_expression(given=given)
        for found in expression.finditer(text) if expression else ():
            yield PatternMatch(found.start(), found.end(), self._known[found.group()].name)

    def _literal_expression(self, *, given: bool) -> re.Pattern[str] | None:
        if given not in self._literals:
            values = [
                _bounded(value, given=known.given)
                for value, known in sorted(self._known.items(), key=lambda item: -len(item[0]))
                if (given or not known.given) and (not known.given or _WORD.search(value))
            ]
            self._literals[given] = re.compile("|".join(values)) if values else None
        return self._literals[given]

    def _merged(self, text: str, edits: list[Edit]) -> Iterator[Edit]:
        """Join edits of different views that overlap; the same stretch is edited once."""
        last: Edit | None = None
        for edit in edits:
            if last is None or edit.start >= last.end:
                if last is not None:
                    yield last
                last = edit
            elif edit.end >= last.end and text[: last.start].endswith("\\"):
                last = edit  # the other one took the letter of an escape for the value's first
            elif edit.start == last.start and edit.end > last.end:
                last = edit
            elif edit.end > last.end:
                stretch = text[last.start : edit.end]
                last = Edit(last.start, edit.end, self.pseudonym("value", stretch))
        if last is not None:
            yield last


def _outside_pseudonyms(text: str, found: list[PatternMatch]) -> list[PatternMatch]:
    """Return the matches outside pseudonyms, which are no personal data."""
    if not found or "<" not in text:
        return found
    taken = [one.span() for one in PSEUDONYM.finditer(text)]
    return [
        match
        for match in found
        if not any(start <= match.start and match.end <= end for start, end in taken)
    ]


def _joined(found: list[PatternMatch]) -> list[PatternMatch]:
    """Return the matches with overlapping ones merged."""
    joined: list[PatternMatch] = []
    for match in sorted(found, key=lambda one: (one.start, -one.end)):
        if joined and match.start < joined[-1].end:
            joined[-1] = joined[-1]._replace(end=max(joined[-1].end, match.end))
        else:
            joined.append(match)
    return joined


def _least(value: str) -> int:
    return max(_SHORT, len(value) // 2)


def _bounded(value: str, *, given: bool) -> str:
    """Return the expression of a value: short ones and names match no part of a longer word."""
    literal = re.escape(value)
    if len(value) == 1:
        return rf"(?<!\w){literal}(?!\w)"
    if not given and len(value) >= _SHORT:
        return literal
    before = "(?<![A-Za-z0-9_])" if _ASCII_WORD.match(value[0]) else ""
    after = "(?![A-Za-z0-9_])" if _ASCII_WORD.match(value[-1]) else ""
    return before + literal + after
