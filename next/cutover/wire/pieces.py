"""Pieces of a stream: the texts of an event, and which tool call a piece belongs to."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cutover.chat_form import decode_or
from cutover.flow import Frame
from cutover.wire.dialect import Place

_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]+')


@dataclass(frozen=True, slots=True)
class TextCut:
    """A piece of text in an event: where, and what it adds to its channel.

    `tail` is half a character behind it, which the next piece completes; a `repeat` says again
    what another place of the event says.
    """

    place: Place
    channel: str
    text: str
    tail: str = ""
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class Edits:
    """Where the texts of an event are, and its ids that the client knows otherwise."""

    cuts: tuple[TextCut, ...] = ()
    ids: tuple[tuple[Place, str], ...] = ()


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
        edits: Edits = frame.source or Edits()
        if frame.verdict != "content" or frame.rest or len(edits.cuts) != 1:
            return None
        (cut,) = edits.cuts
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


@dataclass(slots=True, eq=False)
class StreamedCall:
    """A tool call of a stream, the `number`-th from 1; its name as far as it is known."""

    id: Any
    number: int
    name: str = ""


class Calls:
    """The tool calls of one stream, told apart as SDKs do: by id, else by index, else by order."""

    def __init__(self) -> None:
        self._all: list[StreamedCall] = []
        self._by_index: dict[Any, StreamedCall] = {}

    def of(
        self, id_: Any, index: Any, name: str, arguments: Callable[[StreamedCall], str]
    ) -> StreamedCall:
        """Return the call that a piece belongs to, a new one where it begins one.

        None stands for an id or an index that the piece lacks; `arguments` returns a call's so far.
        """
        call = next((one for one in self._all if id_ is not None and one.id == id_), None)
        if call is None:
            call = self._by_index.get(index) if index is not None else None
            if call is None and index is None and self._all:
                call = self._all[-1]
            if call is not None and _begins_anew(call, id_, name, arguments):
                call = None
        if call is None:
            call = StreamedCall(id_, len(self._all) + 1)
            self._all.append(call)
        call.id = call.id or id_
        if index is not None:
            self._by_index[index] = call
        return call


def _begins_anew(
    call: StreamedCall, id_: Any, name: str, arguments: Callable[[StreamedCall], str]
) -> bool:
    """Whether a piece that would go on with a call begins another one."""
    if id_ is not None:
        return call.id is not None
    if not (name and call.name):
        return False
    return name != call.name or decode_or(arguments(call), call) is not call
