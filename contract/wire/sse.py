"""Server-sent events, sans I/O: a decoder with `feed` and `flush`, and the encoders.

Rules: WHATWG HTML, "Interpreting an event stream". Working on bytes is safe because no byte of a
multi-byte UTF-8 sequence equals CR or LF.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

_BOM = b"\xef\xbb\xbf"
# Thirty thousand years in milliseconds; int() refuses thousands of digits with an exception.
_MOST_RETRY_DIGITS = 15


class SseEvent(msgspec.Struct, frozen=True):
    """One dispatched event; `data` as bytes (lines joined by LF), `event` "" when unnamed."""

    data: bytes
    event: str = ""
    id: str = ""
    retry: int | None = None

    @property
    def text(self) -> str:
        """`data` as text, invalid UTF-8 replaced."""
        return self.data.decode("utf-8", "replace")


@dataclass(slots=True, eq=False)
class SseDecoder:
    """Turns bytes, cut anywhere, into events; an unterminated last event is dropped."""

    keepalives: int = 0
    # Pieces, joined once: a line of megabytes would otherwise be copied with every piece.
    _tail: list[bytes] = field(default_factory=list)
    _start: bool = True
    _after_cr: bool = False
    _data: list[bytes] = field(default_factory=list)
    _event: str = ""
    _id: str = ""
    _retry: int | None = None

    def feed(self, piece: bytes) -> list[SseEvent]:
        """Take the next bytes; return the events they complete."""
        if self._start:
            piece = b"".join((*self._tail, piece))
            self._tail.clear()
            if len(piece) < len(_BOM) and _BOM.startswith(piece):
                self._tail.append(piece)
                return []
            self._start = False
            piece = piece.removeprefix(_BOM)
        if self._after_cr and piece:
            piece = piece.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in piece:
            self._after_cr = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in piece:
            self._tail.append(piece)
            return []
        lines = b"".join((*self._tail, piece)).split(b"\n")
        self._tail = [lines.pop()]
        events: list[SseEvent] = []
        data = self._data
        for line in lines:
            if line.startswith(b"data: "):
                data.append(line[6:])
            elif line:
                self._field(line)
            else:
                if data:
                    joined = data[0] if len(data) == 1 else b"\n".join(data)
                    events.append(SseEvent(joined, self._event, self._id, self._retry))
                    self._retry = None
                    data.clear()
                self._event = ""
        return events

    def flush(self) -> list[SseEvent]:
        """End the stream: what was not ended by a blank line is not an event."""
        self._data.clear()
        self._tail.clear()
        return []

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not name:
            self.keepalives += 1
        elif name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= _MOST_RETRY_DIGITS:
            self._retry = int(value)


def comment(text: str) -> bytes:
    """Encode a comment frame; `text` must be one line."""
    return f": {text}\n\n".encode()


def is_comment(frame: bytes) -> bool:
    """Whether a frame is a comment, and so no part of what is compared."""
    return frame.startswith(b":")


_encoder = msgspec.json.Encoder()


def data_frame(event: msgspec.Struct) -> bytes:
    """Encode one event as a frame without a name."""
    return b"data: " + _encoder.encode(event) + b"\n\n"


class NamedEventEncoder:
    """Encodes tagged structs as frames with a name; the tag is left out of the data.

    An event's name is its tag, unless `names` has another. Each struct has a field beside its tag.
    """

    def __init__(
        self,
        events: Iterable[type[msgspec.Struct]],
        names: Mapping[type[msgspec.Struct], str] | None = None,
    ) -> None:
        self._heads: dict[type[msgspec.Struct], tuple[bytes, int]] = {}
        for event in events:
            config = event.__struct_config__
            head = f"event: {(names or {}).get(event, config.tag)}\ndata: {{"
            tag = _encoder.encode({config.tag_field: config.tag})
            self._heads[event] = (head.encode(), len(tag))

    def encode(self, event: msgspec.Struct) -> bytes:
        """Encode one event as a frame."""
        head, after_tag = self._heads[type(event)]
        return b"%b%b\n\n" % (head, _encoder.encode(event)[after_tag:])
