"""The answer of a service, as a flow's events: its head, and bytes that a dialect reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from cutover.errors import Completed, CutoverError, Failed, Refusal, StackFailed
from cutover.flow import Event, Frame, Framing, ResponseHead, Texts
from cutover.wire.dialect import Dialect
from cutover.wire.reader import Reader
from cutover.wire.splitters import MOST_BLOCK_BYTES, BlockTooLong

_CLIENT_ERROR, _SERVER_ERROR = 400, 500


class AnswerHead(msgspec.Struct, frozen=True, tag="head"):
    """How an answer begins: the first event of a service's run."""

    status: int
    headers: tuple[tuple[str, str], ...]

    @property
    def media(self) -> str:
        """The media type, without its parameters."""
        named = (value for name, value in self.headers if name == "content-type")
        return next(named, "").partition(";")[0].strip().lower()


class Piece(msgspec.Struct, frozen=True, tag="piece"):
    """Bytes of a stream, as they came: some events, and perhaps a part of one."""

    raw: bytes


class End(msgspec.Struct, frozen=True, tag="end"):
    """The end of a stream, where its connection was not broken off."""


class WholeBody(msgspec.Struct, frozen=True, tag="body"):
    """A whole answer that is no stream."""

    raw: bytes


class ServiceFraming:
    """Reads one run of a service: bytes pass as they are, and the dialect says what they mean."""

    verbatim = True

    def __init__(
        self, dialect: Dialect, after: Framing | None = None, limit: int = MOST_BLOCK_BYTES
    ) -> None:
        before = after.reader if isinstance(after, ServiceFraming) else None
        self.reader: Reader = Reader(dialect, after=before, joins=before is None, limit=limit)
        self.texts: Texts = self.reader.texts
        self.head = ResponseHead()
        self.comments = dialect.framing == "sse"
        self._whole: Completed | Failed | Refusal | None = None

    def read(self, event: Event) -> Sequence[Frame]:
        """Return the frames that an event completes; raises `StackFailed`."""
        match event:
            case AnswerHead():
                self.head = ResponseHead(event.status, event.headers)
                self.comments = self.comments and event.media == "text/event-stream"
                rest = msgspec.json.encode([event.status, event.media])
                return [Frame(b"", "head", (), rest, "preamble")]
            case Piece():
                try:
                    return self.reader.feed(event.raw)
                except BlockTooLong as error:
                    raise StackFailed(code="event_too_long", detail=str(error)) from error
            case End():
                return self.reader.close()
            case WholeBody():
                self._whole = _judged(self.head.status, event.raw)
                failed = self._whole if isinstance(self._whole, Failed) else None
                rest = _canonical(event.raw)
                return [Frame(event.raw, "body", (), rest, "terminal", failed)]
            case _:
                message = f"a service's event is no {type(event).__name__}"
                raise CutoverError(message)

    def frame(self, event: Event) -> Frame:
        """Return the frame of bytes of the router's own, which tell of a failure."""
        raw = event.raw if isinstance(event, Piece) else b""
        return Frame(raw, "failure", (), _canonical(raw))

    def trimmed(self, frame: Frame, skip: Mapping[str, int]) -> bytes:
        """Encode a frame without the first characters of its texts."""
        return self.reader.trimmed(frame, skip)

    @property
    def ending(self) -> Completed | Failed | Refusal:
        """How the answer has ended, behind its last byte."""
        return self._whole or self.reader.ending


def _judged(status: int, raw: bytes) -> Completed | Failed | Refusal:
    """Return what a whole answer is: its status says so."""
    if status >= _SERVER_ERROR:
        shown = raw[:200].decode("utf-8", "replace")
        return Failed("service_failed", "stack", f"status {status}: {shown}")
    return Refusal(status, "service_refused") if status >= _CLIENT_ERROR else Completed()


def _canonical(raw: bytes) -> bytes:
    """Return JSON with sorted keys; other bytes as they are, since an empty rest means no event."""
    try:
        return msgspec.json.encode(msgspec.json.decode(raw), order="sorted")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return raw or b"null"
