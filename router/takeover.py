"""What a client has of a stream, and how another stack goes on from there, or the router ends it.

Text decides, not how it is cut: a stream is its marks (events that are not pure text) in order,
and between them the text of each channel, joined.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cutover.errors import CutoverError, Failed, Outcome, Pause
from cutover.flow import Event, Flow, Frame, Framing, Request, Texts


class PrefixMismatch(CutoverError):
    """A successor says something else than what the client has already."""

    def __init__(self, place: str, has: str, got: str, before: str = "") -> None:
        self.place, self.before = place, before
        at = f"{place} before {before}" if before else place
        super().__init__(f"{at}: the client has {has!r}, the successor says {got!r}")


class Mark(msgspec.Struct, frozen=True):
    """An event that is not pure text, and how long each channel was when it came."""

    name: str
    rest: bytes
    lengths: dict[str, int]


@dataclass(slots=True, eq=False)
class Sent:
    """What a client has: marks in order, text joined per channel, the name of the last event."""

    marks: list[Mark] = field(default_factory=list)
    texts: Texts = field(default_factory=Texts)
    last: str | None = None

    def __bool__(self) -> bool:
        return self.last is not None

    def add(self, frame: Frame) -> None:
        """Add a frame that goes out."""
        for channel, text in frame.texts:
            self.texts.add(channel, text)
        if frame.rest:
            self.marks.append(Mark(frame.name, frame.rest, dict(self.texts.lengths)))
        self.last = frame.name

    def close(self, flow: Flow, request: Request[Any, Any], outcome: Outcome) -> list[bytes]:
        """Add the frames by which the router ends a stream in its stack's place, and return them.

        They end a pause or a failure; there are none where the flow's wire has no words for that.
        """
        framer = flow.framer()
        framer.texts = Texts(self.texts)
        events: Sequence[Event] = ()
        match outcome:
            case Pause() if flow.pausing is not None:
                events = flow.pausing.suspended(request.options)
            case Failed(code=code):
                events = flow.failure(request.options, code, self.last)
            case _:
                pass
        frames = [framer.frame(event) for event in events]
        for frame in frames:
            self.add(frame)
        return [frame.raw for frame in frames]


@dataclass(slots=True, eq=False)
class Due:
    """Follows a stack's frames along what the client has; what is new goes out."""

    sent: Sent
    framer: Framing
    _position: int = 0
    _lengths: dict[str, int] = field(default_factory=dict)
    """How long what the stack has said is; as far as the client's text reaches, it is the same."""
    _alone: bool = field(init=False)
    """Whether the client has nothing of an earlier stack: then all is new."""

    def __post_init__(self) -> None:
        self._alone = not (self.sent.marks or self.sent.texts)

    @property
    def behind(self) -> bool:
        """Whether the client still has more than this stack has said."""
        if self._alone:
            return False
        return self._position < len(self.sent.marks) or any(
            self._lengths.get(channel, 0) < length
            for channel, length in self.sent.texts.lengths.items()
        )

    def feed(self, frame: Frame) -> Frame | None:
        """Return what of the next frame is new to the client; None: it has all of it.

        Raises `PrefixMismatch` where it contradicts what the client has.
        """
        if self._alone:
            return frame if frame.rest or frame.texts or self.framer.verbatim else None
        mark = self.sent.marks[self._position] if self._position < len(self.sent.marks) else None
        due = self.sent.texts.lengths if mark is None else mark.lengths
        known = {
            channel: self._check_text(channel, text, due.get(channel, 0), mark)
            for channel, text in frame.texts
        }
        if frame.rest:
            self._check_rest(frame, due, mark)
            self._position += 1
        if not (frame.rest or frame.texts) and self.framer.verbatim:
            return None if self.behind else frame
        return self._trimmed(frame, known) if mark is None else None

    def _check_text(self, channel: str, text: str, due: int, mark: Mark | None) -> int:
        """Return how much of a text the client has; before a mark, that must be all of it."""
        before = self._lengths.get(channel, 0)
        self._lengths[channel] = before + len(text)
        known = min(max(due - before, 0), len(text))
        fits = mark is None or known == len(text)
        if not fits or (known and not self.sent.texts[channel].startswith(text[:known], before)):
            has = self.sent.texts.get(channel, "")
            name = mark.name if mark else ""
            raise PrefixMismatch(channel, has[:due], has[:before] + text, name)
        return known

    def _check_rest(self, frame: Frame, due: Mapping[str, int], mark: Mark | None) -> None:
        """Check that an event is the client's next one, and that no text before it is missing."""
        if mark is not None and (frame.name, frame.rest) != (mark.name, mark.rest):
            raise PrefixMismatch(mark.name, mark.rest.decode(), frame.rest.decode())
        for channel, length in due.items():
            if (said := self._lengths.get(channel, 0)) < length:
                has = self.sent.texts[channel]
                raise PrefixMismatch(channel, has[:length], has[:said], frame.name)

    def _trimmed(self, frame: Frame, known: Mapping[str, int]) -> Frame | None:
        """Return a frame without the text that the client has."""
        if not frame.rest and all(known[channel] == len(text) for channel, text in frame.texts):
            return None
        if not any(known.values()):
            return frame
        texts = tuple((channel, text[known[channel] :]) for channel, text in frame.texts)
        raw = self.framer.trimmed(frame, known)
        said = tuple(one for one in texts if one[1])
        return Frame(raw, frame.name, said, frame.rest, frame.verdict, frame.failed)
