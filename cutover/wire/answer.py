"""The answer of a service, as events of a flow, and the framing that reads them.

`router.services.Service` yields an `AnswerHead`, and then either pieces and an `End`, or a
`WholeBody`. A dialect reads the pieces.
"""

from collections.abc import Mapping, Sequence

import msgspec

from cutover.errors import Completed, CutoverError, Failed, Refusal, StackFailed
from cutover.flow import Event, Frame, Framing, ResponseHead, Texts
from cutover.wire.dialect import Dialect
from cutover.wire.reader import Reader
from cutover.wire.splitters import MOST_BLOCK_BYTES, BlockTooLong

_CLIENT_ERROR, _SERVER_ERROR = 400, 500


class AnswerHead(msgspec.Struct, frozen=True, tag="head"):
    """Status and headers, their names in lower case: the first event of each answer."""

    status: int
    headers: tuple[tuple[str, str], ...]

    @property
    def media(self) -> str:
        """The media type, without its parameters."""
        named = (value for name, value in self.headers if name == "content-type")
        return next(named, "").partition(";")[0].strip().lower()


class Piece(msgspec.Struct, frozen=True, tag="piece"):
    """Bytes of a stream, cut anywhere: whole events, and perhaps a part of one."""

    raw: bytes


class End(msgspec.Struct, frozen=True, tag="end"):
    """The end of a stream; one whose connection broke has none."""


class WholeBody(msgspec.Struct, frozen=True, tag="body"):
    """The body of an answer that is no stream, such as an error's."""

    raw: bytes


class ServiceFraming:
    """Reads one run of a service: its bytes are passed on, and the dialect says what they mean.

    `after` is the framing of the run that this one takes over from: the client knows ids by it.
    """

    verbatim = True

    def __init__(
        self, dialect: Dialect, after: Framing | None = None, limit: int = MOST_BLOCK_BYTES
    ) -> None:
        first = after.reader if isinstance(after, ServiceFraming) else None
        # A successor's frames may have to be trimmed, and those that were joined cannot be.
        self.reader: Reader = Reader(dialect, after=first, joins=first is None, limit=limit)
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
                self._whole = _outcome(self.head.status, event.raw)
                failed = self._whole if isinstance(self._whole, Failed) else None
                return [Frame(event.raw, "body", (), _canonical(event.raw), "terminal", failed)]
            case _:
                message = f"a service's event is no {type(event).__name__}"
                raise CutoverError(message)

    def frame(self, event: Event) -> Frame:
        """Return the frame of a `Piece` by which the router itself reports a failure."""
        raw = event.raw if isinstance(event, Piece) else b""
        return Frame(raw, "failure", (), _canonical(raw))

    def trimmed(self, frame: Frame, skip: Mapping[str, int]) -> bytes:
        """Encode a frame without the first characters of its texts."""
        return self.reader.trimmed(frame, skip)

    @property
    def ending(self) -> Completed | Failed | Refusal:
        """How the answer has ended, once its last event has been read."""
        return self._whole or self.reader.ending


def _outcome(status: int, raw: bytes) -> Completed | Failed | Refusal:
    """Return how an answer that is no stream has ended, by its status."""
    if status >= _SERVER_ERROR:
        shown = raw[:200].decode("utf-8", "replace")
        return Failed("service_failed", "stack", f"status {status}: {shown}")
    return Refusal(status, "service_refused") if status >= _CLIENT_ERROR else Completed()


def _canonical(raw: bytes) -> bytes:
    """Return JSON with sorted keys, and other bytes as they are.

    Never b"", since a frame with neither texts nor a rest says nothing.
    """
    try:
        return msgspec.json.encode(msgspec.json.decode(raw), order="sorted")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return raw or b"null"
