"""Pieces of a stream: the texts of an event, and which tool call a piece belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cutover.chat_form import decode_or
from cutover.flow import Frame
from cutover.wire.dialect import Place

_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]+')


@dataclass(frozen=True, slots=True)
class TextCut:
    """A piece of text in an event: where, and what it adds to its channel.

    Several places say it where one repeats the other. `tail` is half a character behind it, which
    the next piece completes.
    """

    places: list[Place]
    channel: str
    text: str
    tail: str = ""


@dataclass(frozen=True, slots=True)
class EventPiece:
    """An event whose only text is all that may differ in the next one: most of a stream.

    Reading such an event as any other takes fifty times as long, and finds the same.
    """

    name: str
    cut: TextCut
    head: bytes
    tail: bytes

    @classmethod
    def of(cls, frame: Frame) -> EventPiece | None:
        """Return what the next event is held against; None where it is to be read as a whole."""
        if frame.verdict != "content" or frame.rest or len(frame.source) != 1:
            return None
        (cut,) = frame.source
        said = b'"' + cut.text.encode("utf-8", "replace") + b'"'
        called = cut.channel.startswith("call ")  # where a call ends, its arguments say
        if cut.tail or not cut.text or called or frame.raw.count(said) != 1:
            return None
        head, tail = frame.raw.split(said)
        return cls(frame.name, cut, head + b'"', b'"' + tail)

    def text_of(self, block: bytes) -> str:
        """Return the text of an event that is the same in all else, "" where it is not."""
        if not (block.startswith(self.head) and block.endswith(self.tail)):
            return ""
        text = block[len(self.head) : len(block) - len(self.tail)]
        try:
            return text.decode() if _PLAIN.fullmatch(text) else ""
        except UnicodeDecodeError:
            return ""


class Calls:
    """The tool calls of one stream, told apart as SDKs do: by id, else by index, else by order.

    `texts` are those of the stream, by channel.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._ids: list[Any] = []
        self._by_index: dict[Any, int] = {}

    def number_of(self, id_: Any, index: Any, name: Any) -> int:
        """Return which call, from 1, a piece belongs to; None is what the piece lacks."""
        if id_ is not None and id_ in self._ids:
            number = self._ids.index(id_) + 1
        else:
            number = len(self._ids) if index is None else self._by_index.get(index, 0)
            if not number or self._begins_anew(number, id_, name):
                self._ids.append(None)
                number = len(self._ids)
            self._ids[number - 1] = self._ids[number - 1] or id_
        if index is not None:
            self._by_index[index] = number
        return number

    def _begins_anew(self, number: int, id_: Any, name: Any) -> bool:
        """Whether a piece that would go on with a call begins another one."""
        if id_ is not None:
            return self._ids[number - 1] is not None
        known = self._texts.get(f"call {number} name")
        if not (name and known):
            return False
        arguments = self._texts.get(f"call {number} arguments", "")
        return name != known or decode_or(arguments, None) is not None
