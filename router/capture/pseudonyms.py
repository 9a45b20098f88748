"""Pseudonyms: personal data in a text is found, and replaced by keyed digests. Pure.

A text that is JSON (a tool call's arguments, an answer in JSON mode) is looked at string by string
and number by number, so that an edit can never break it. Any other text is looked at as it stands
and once more with its JSON escapes undone. Texts may end in half a UTF-16 surrogate pair.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterator, Sequence
from string import ascii_letters, digits
from typing import Any, Literal, NamedTuple

import msgspec

from router.config.patterns import PatternMatch, Patterns

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


class KnownValue(NamedTuple):
    """A value's kind, whether a path led to it, and its first bytes in JSON."""

    name: str
    given: bool
    raw: bytes | None


class Dictionary:
    """Learns values first, then returns the edits that replace each by a keyed pseudonym.

    Values found by a pattern are removed wherever they stand. Values found at a path (names,
    mostly) are removed at word boundaries, never as part of a longer word, and not where they
    are the word of a protocol (`{"role": "user"}` stays when a person is called user). `known` are
    the values that it begins with; what it learns is added to them.
    """

    def __init__(
        self, key: bytes, patterns: Patterns, known: dict[str, KnownValue] | None = None
    ) -> None:
        self._key = key
        self._patterns = patterns
        self._known: dict[str, KnownValue] = {} if known is None else known
        self._literals: dict[bool, re.Pattern[str] | None] = {}
        self._seen: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._known)

    def learn(self, text: str) -> None:
        """Learn what the patterns find in a text."""
        if not self._patterns or text in self._seen:
            return
        self._seen.add(text)
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

    def replaced(self, text: str, *, given: bool = True) -> str:
        """Return a text with pseudonyms; with `given` off, values given by paths may stay."""
        if "\\" not in text:
            for value in self._known:
                if value in text:
                    break
            else:
                return text
        return applied(text, self.edits(text, given=given))

    def edits(self, text: str, *, given: bool = True) -> list[TextEdit]:
        """Return the edits of a text; with `given` off, values given by paths may stay."""
        found = [edit for view in views(text) for edit in self._view_edits(view, given=given)]
        return list(self._merged(text, sorted(found)))

    def stream_edits(self, text: str) -> list[TextEdit]:
        """Return the edits of a streamed text, which may end inside a known value.

        Its beginning goes where half of the value and four characters at least are there.
        """
        edits = self.edits(text)
        tail = len(text)
        for value in self._known:
            for length in range(len(value) - 1, _least(value) - 1, -1):
                if text.endswith(value[:length]):
                    tail = min(tail, len(text) - length)
                    break
        tail = max(tail, edits[-1].end if edits else 0)
        return [*edits, TextEdit(tail, len(text), "")] if tail < len(text) else edits

    def _add(self, name: str, value: str, *, given: bool) -> None:
        if value not in self._known:
            start = value[: _least(value)].encode("utf-8", "surrogatepass")
            raw = None if _OTHERWISE_WRITTEN.search(value) else start
            self._known[value] = KnownValue(name, given, raw)
            self._literals.clear()

    def _view_edits(self, view: View, *, given: bool) -> Iterator[TextEdit]:
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
                yield TextEdit(view.at[0], view.at[-1], quoted(pseudonym, view.depth))
            return
        for start, end, name in matches:
            yield TextEdit(view.at[start], view.at[end], self.pseudonym(name, view.text[start:end]))

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

    def _merged(self, text: str, edits: list[TextEdit]) -> Iterator[TextEdit]:
        """Join edits of different views that overlap; the same stretch is edited once."""
        last: TextEdit | None = None
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
                last = TextEdit(last.start, edit.end, self.pseudonym("value", stretch))
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


Kind = Literal["text", "key", "number"]

_DEEPEST = 4
_HEAD = 64
_BASE64 = (ascii_letters + digits + "+/=").encode()
_TOKEN = re.compile(
    r'"(?P<string>(?:[^"\\]|\\.)*)"(?P<key>\s*:)?|(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)',
    re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|\\u(?P<unit>[0-9a-fA-F]{4})"
    r'|\\(?P<char>["\\/bfnrt])'
)
_CHARS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class View(NamedTuple):
    """A stretch of a text: `text` decoded, `at[i]` where its i-th character (and its end) stands.

    `depth` counts the string literals around it.
    """

    text: str
    at: Sequence[int]
    kind: Kind = "text"
    depth: int = 0


def views(text: str, depth: int = 0) -> Iterator[View]:
    """Yield the views of a text; an image or the like in base64 has none."""
    if is_payload(text):
        return
    if is_json(text):
        yield from _token_views(text, depth)
        return
    yield View(text, range(len(text) + 1), "text", depth)
    if "\\" in text and depth < _DEEPEST:
        plain = unescaped(text)
        if plain.text != text:
            yield from (_within(plain.at, below) for below in views(plain.text, depth + 1))


def is_payload(text: str) -> bool:
    """Whether a text is a data URL in base64: long, unreadable and slow to search."""
    if not text.startswith("data:") or not text.isascii():
        return False
    head, mark, content = text.partition(";base64,")
    return bool(mark) and len(head) < _HEAD and not content.encode().translate(None, _BASE64)


def is_json(text: str) -> bool:
    """Whether a text is a JSON object or array."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        decode_json(text)
    except (ValueError, RecursionError):
        return False
    return True


def unescaped(text: str) -> View:
    """Return a text with its JSON escapes undone, and where each character stood."""
    parts: list[str] = []
    at: list[int] = []
    done = 0
    for found in _ESCAPE.finditer(text):
        parts += (text[done : found.start()], _meaning(found))
        at += range(done, found.start() + 1)
        done = found.end()
    parts.append(text[done:])
    at += range(done, len(text) + 1)
    return View("".join(parts), at)


def quoted(pseudonym: str, depth: int) -> str:
    """Return the JSON string that takes a number's place, `depth` string literals deep."""
    literal = f'"{pseudonym}"'
    for _ in range(depth):
        literal = json.dumps(literal)[1:-1]
    return literal


def _token_views(text: str, depth: int) -> Iterator[View]:
    for token in _TOKEN.finditer(text):
        if token["number"] is not None:
            yield View(token["number"], range(token.start(), token.end() + 1), "number", depth)
        elif token["string"]:
            yield from _string_views(token, depth)


def _string_views(token: re.Match[str], depth: int) -> Iterator[View]:
    start, content = token.start("string"), token["string"]
    plain = unescaped(content) if "\\" in content else View(content, range(len(content) + 1))
    at = [start + place for place in plain.at]
    if token["key"] or depth >= _DEEPEST:
        yield View(plain.text, at, "key" if token["key"] else "text", depth + 1)
        return
    yield from (_within(at, below) for below in views(plain.text, depth + 1))


def _within(at: Sequence[int], below: View) -> View:
    return below._replace(at=[at[place] for place in below.at])


def _meaning(found: re.Match[str]) -> str:
    if found["high"]:
        pair = (int(found["high"], 16) - 0xD800) << 10 | (int(found["low"], 16) - 0xDC00)
        return chr(0x10000 + pair)
    if found["unit"]:
        return chr(int(found["unit"], 16))
    return _CHARS.get(found["char"], found["char"])


def decode_json(text: str) -> Any:
    """Read JSON; raises `ValueError` where it is none, `RecursionError` where it is too deep."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        if "\\u" not in text:
            raise
    return json.loads(text)


def encode_json(tree: Any) -> str:
    """Write JSON; only an escape can carry half a surrogate pair."""
    try:
        return msgspec.json.encode(tree).decode()
    except UnicodeEncodeError:
        return json.dumps(tree, separators=(",", ":"))


class TextEdit(NamedTuple):
    """Replace `text[start:end]` by `put`."""

    start: int
    end: int
    put: str


def applied(text: str, edits: Sequence[TextEdit]) -> str:
    """Apply edits, in order and without overlap, to one text."""
    parts: list[str] = []
    done = 0
    for edit in edits:
        parts += (text[done : edit.start], edit.put)
        done = edit.end
    parts.append(text[done:])
    return "".join(parts)
