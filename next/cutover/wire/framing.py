"""The answer of a service, as a flow's events: its head, and blocks that a dialect reads."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cutover.errors import Completed, CutoverError, Failed, Refusal
from cutover.flow import Event, Frame, Framing, ResponseHead, Texts
from cutover.wire.dialect import Dialect
from cutover.wire.reader import Reader, Reading

_REFUSALS = range(400, 500)
_SERVER_ERROR = 500


class AnswerHead(msgspec.Struct, frozen=True, tag="head"):
    """How an answer begins: the first event of a service's run."""

    status: int
    headers: tuple[tuple[str, str], ...]

    @property
    def media(self) -> str:
        """The media type, without its parameters."""
        named = (value for name, value in self.headers if name == "content-type")
        return next(named, "").partition(";")[0].strip().lower()


class Block(msgspec.Struct, frozen=True, tag="block"):
    """One event of a stream, as it came; the `last` lacks its end."""

    raw: bytes
    last: bool = False


class Body(msgspec.Struct, frozen=True, tag="body"):
    """A whole answer that is no stream."""

    raw: bytes


class ServiceFraming:
    """Reads one run of a service: bytes pass as they are, and the dialect says what they mean."""

    verbatim = True

    def __init__(self, dialect: Dialect, after: Framing | None = None) -> None:
        before = after.reader if isinstance(after, ServiceFraming) else None
        self.reader: Reader = Reader(dialect, after=before)
        self.texts: Texts = self.reader.texts
        self.head = ResponseHead()
        self.comments = dialect.framing == "sse"
        self._reading: Reading | None = None
        self._whole: Completed | Failed | Refusal | None = None

    def read(self, event: Event) -> Frame:
        """Return an event's frame."""
        self._reading = None
        match event:
            case AnswerHead():
                self.head = ResponseHead(event.status, event.headers)
                self.comments = self.comments and event.media == "text/event-stream"
                rest = msgspec.json.encode([event.status, event.media])
                return Frame(b"", "head", (), rest)
            case Block():
                self._reading = self.reader.read(event.raw, last=event.last)
                return self._reading.frame
            case Body():
                self._whole = self._judged(event.raw)
                return Frame(event.raw, "body", (), _canonical(event.raw))
            case _:
                message = f"a service's event is no {type(event).__name__}"
                raise CutoverError(message)

    def frame(self, event: Event) -> Frame:
        """Return the frame of a block of the router's own, which tells of a failure."""
        raw = event.raw if isinstance(event, Block) else b""
        return Frame(raw, "failure", (), _canonical(raw))

    def trimmed(self, event: Event, skip: Mapping[str, int]) -> bytes:  # noqa: ARG002 - as read
        """Encode the event that was read last without the first characters of its texts."""
        assert self._reading is not None  # noqa: S101 - only a block has texts
        return self.reader.trimmed(self._reading, skip)

    def preamble(self, event: Event) -> bool:
        """Whether an event says nothing of the answer yet."""
        reading = self._reading
        return isinstance(event, AnswerHead) or (
            reading is not None and reading.verdict == "preamble"
        )

    def reported(self, event: Event) -> Failed | None:
        """Return the failure that an event, or the status of a whole answer, tells of."""
        if isinstance(event, Body):
            return self._whole if isinstance(self._whole, Failed) else None
        return self._reading.failure if self._reading is not None else None

    def ends(self, event: Event) -> bool:
        """Whether an event is the last one that the dialect knows, or the whole answer."""
        terminal = self._reading is not None and self._reading.verdict == "terminal"
        return terminal or isinstance(event, Body)

    @property
    def ending(self) -> Completed | Failed | Refusal:
        """How the answer has ended, behind its last byte."""
        if self._whole is None:
            self.reader.close()
        return self._whole or self.reader.ending

    def _judged(self, raw: bytes) -> Completed | Failed | Refusal:
        """Return what a whole answer is: its status says so."""
        status = self.head.status
        if status >= _SERVER_ERROR:
            shown = raw[:200].decode("utf-8", "replace")
            return Failed("service_failed", "stack", f"status {status}: {shown}")
        return Refusal(status, "service_refused") if status in _REFUSALS else Completed()


def _canonical(raw: bytes) -> bytes:
    """Return JSON with sorted keys; other bytes as they are, since an empty rest means no event."""
    try:
        return msgspec.json.encode(msgspec.json.decode(raw), order="sorted")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return raw or b"null"
