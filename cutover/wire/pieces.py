"""Pieces of text in a stream's events, and the tool call that each belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cutover.chat_form import decode_or
from cutover.flow import Frame
from cutover.wire.dialect import Place

_UNESCAPED: Final = re.compile(rb'[^"\\\x00-\x1f]+')
"""What a JSON string holds, where that is its text as it stands."""


@dataclass(frozen=True, slots=True)
class TextCut:
    """A piece of text in an event, which is added to a channel.

    `places` are where it stands: several, where the event repeats it. `half` is the first half of a
    character (a surrogate) that stands behind it; the channel's next piece brings the other half.
    """

    places: list[Place]
    channel: str
    text: str
    half: str = ""


@dataclass(frozen=True, slots=True)
class EventTemplate:
    """An event by which the next ones are read, where they differ from it in their text alone.

    Most events of a stream do. Reading one in full makes the same frame, and takes fifty times as
    long. `head` and `tail` are the bytes before and behind the text.
    """

    name: str
    cut: TextCut
    head: bytes
    tail: bytes

    @classmethod
    def of(cls, frame: Frame) -> EventTemplate | None:
        """Return the template of a frame's event; None: the next event must be read in full."""
        if frame.verdict != "content" or frame.rest or len(frame.source) != 1:
            return None
        (cut,) = frame.source
        quoted = b'"' + cut.text.encode("utf-8", "replace") + b'"'
        of_call = cut.channel.startswith("call ")  # `Calls` has to see each piece of a call
        if cut.half or not cut.text or of_call or frame.raw.count(quoted) != 1:
            return None
        head, tail = frame.raw.split(quoted)
        return cls(frame.name, cut, head + b'"', b'"' + tail)

    def text_of(self, block: bytes) -> str:
        """Return the text of an event; "" where the event differs in anything else."""
        if not (block.startswith(self.head) and block.endswith(self.tail)):
            return ""
        text = block[len(self.head) : len(block) - len(self.tail)]
        try:
            return text.decode() if _UNESCAPED.fullmatch(text) else ""
        except UnicodeDecodeError:
            return ""


class Calls:
    """The tool calls of one stream, numbered from 1 in order of appearance.

    A piece belongs to the call of its id; without a known id, to that of its index; without an
    index, to the newest one. So SDKs read it. `texts` are those of the stream, by channel.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._ids: list[Any] = []
        """By call; None where no piece has brought one."""
        self._by_index: dict[Any, int] = {}

    def number_of(self, id_: Any, index: Any, name: Any) -> int:
        """Return the number of the call that a piece belongs to; None is what the piece lacks."""
        if id_ is not None and id_ in self._ids:
            number = self._ids.index(id_) + 1
        else:
            number = len(self._ids) if index is None else self._by_index.get(index, 0)
            if not number or self._begins_another(number, id_, name, indexed=index is not None):
                self._ids.append(None)
                number = len(self._ids)
            self._ids[number - 1] = self._ids[number - 1] or id_
        if index is not None:
            self._by_index[index] = number
        return number

    def _begins_another(self, number: int, id_: Any, name: Any, *, indexed: bool) -> bool:
        """Whether a piece with the index or at the place of a call begins another one.

        It does with another id; without an id, with another name, or with a name behind arguments
        that are whole. At the index of a call, a piece without a name goes on, since some servers
        draw an id for each piece; so does one with a name alone, before there are arguments.
        """
        if id_ is not None:
            return self._ids[number - 1] is not None and bool(name or not indexed)
        known = self._texts.get(f"call {number} name")
        if not (name and known):
            return False
        arguments = self._texts.get(f"call {number} arguments", "")
        if name != known:
            return not indexed or arguments != ""
        return decode_or(arguments, None) is not None
