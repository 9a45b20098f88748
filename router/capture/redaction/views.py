"""Views of a text: the stretches in which to look, decoded, with the way back to the text itself.

A text that is JSON (a tool call's arguments, an answer in JSON mode) is looked at string by string
and number by number, so that an edit can never break it. Any other text is looked at as it stands
and once more with its JSON escapes undone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from string import ascii_letters, digits
from typing import Literal, NamedTuple

from router.capture.redaction.halves import (
    decoded,
)

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
    """Whether a text is a data URL in base64: long, nothing to read, and slow to search."""
    if not text.startswith("data:") or not text.isascii():
        return False
    head, mark, content = text.partition(";base64,")
    return bool(mark) and len(head) < _HEAD and not content.encode().translate(None, _BASE64)


def is_json(text: str) -> bool:
    """Whether a text is a JSON object or array."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        decoded(text)
    except (ValueError, RecursionError):
        return False
    return True


def unescaped(text: str) -> View:
    """Undo the JSON escapes in a text, and remember where everything stood."""
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
    """Give the JSON string that takes a number's place, `depth` string literals deep."""
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
