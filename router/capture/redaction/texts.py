"""Texts under redaction: the stretches to look in, and edits spread over pieces of a text.

A text that is JSON (a tool call's arguments, an answer in JSON mode) is looked at string by string
and number by number, so that an edit can never break it. Any other text is looked at as it stands
and once more with its JSON escapes undone. Texts may end in half a UTF-16 surrogate pair.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from string import ascii_letters, digits
from typing import Any, Literal, NamedTuple

import msgspec

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


def searchable(text: str) -> bytes:
    """Return a text's bytes, to be searched."""
    return text.encode("utf-8", "surrogatepass")


class Edit(NamedTuple):
    """Replace `text[start:end]` by `put`."""

    start: int
    end: int
    put: str


def applied(text: str, edits: Sequence[Edit]) -> str:
    """Apply edits, in order and without overlap, to one text."""
    parts: list[str] = []
    done = 0
    for edit in edits:
        parts += (text[done : edit.start], edit.put)
        done = edit.end
    parts.append(text[done:])
    return "".join(parts)


def over_deltas(pieces: Sequence[str], edits: Sequence[Edit]) -> list[str]:
    """Apply edits of the joined pieces to the pieces.

    What is put in goes whole into the piece in which the edited stretch ends.
    """
    result: list[str] = []
    start = 0
    for piece in pieces:
        end = start + len(piece)
        result.append(applied(piece, list(_edits_within(edits, start, end))))
        start = end
    return result


def over_prefixes(pieces: Sequence[str], edits: Sequence[Edit]) -> list[str]:
    """Apply edits of the last piece to all, each being the beginning of the next.

    A piece that ends inside an edited stretch is cut back to before it.
    """
    return [_cut_back(piece, edits) for piece in pieces]


def chains(pieces: Sequence[str]) -> Iterator[list[str]]:
    """Split cumulative texts into runs in which each is the beginning of the next."""
    chain: list[str] = []
    for piece in pieces:
        if chain and not piece.startswith(chain[-1]):
            yield chain
            chain = []
        chain.append(piece)
    if chain:
        yield chain


def _edits_within(edits: Sequence[Edit], start: int, end: int) -> Iterator[Edit]:
    for edit in edits:
        if edit.start < end and edit.end > start:
            put = edit.put if edit.end <= end else ""
            yield Edit(max(edit.start, start) - start, min(edit.end, end) - start, put)


def _cut_back(piece: str, edits: Sequence[Edit]) -> str:
    inside = next((edit for edit in edits if edit.start < len(piece) < edit.end), None)
    if inside is not None:
        piece = piece[: inside.start]
    return applied(piece, [edit for edit in edits if edit.end <= len(piece)])
