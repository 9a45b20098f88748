"""What a client has of a stream, and how another stack goes on from there.

Text decides, not how it is cut: a stream is its marks (events that are not pure text) in order,
and between them the text of each channel, joined.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from cutover.errors import CutoverError
from cutover.flow import Event, Frame, Framer


class PrefixMismatch(CutoverError):
    """A successor says something else than what the client has already."""

    def __init__(self, place: str, has: str, got: str, before: str = "") -> None:
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
    texts: dict[str, str] = field(default_factory=dict)
    last: str | None = None

    def __bool__(self) -> bool:
        return self.last is not None

    def add(self, frame: Frame) -> None:
        """Add a frame that goes out."""
        for channel, text in frame.texts:
            self.texts[channel] = self.texts.get(channel, "") + text
        if frame.rest:
            lengths = {channel: len(text) for channel, text in self.texts.items()}
            self.marks.append(Mark(frame.name, frame.rest, lengths))
        self.last = frame.name

    def same(self, other: Sent) -> bool:
        """Whether two whole streams tell a client the same."""
        return self.marks == other.marks and self.texts == other.texts


@dataclass(slots=True, eq=False)
class Due:
    """Follows a stack's frames along what the client has; what is new goes out."""

    sent: Sent
    framer: Framer
    _position: int = 0
    _texts: dict[str, str] = field(default_factory=dict)

    @property
    def behind(self) -> bool:
        """Whether the client still has more than this stack has said."""
        return self._position < len(self.sent.marks) or any(
            len(self._texts.get(channel, "")) < len(text)
            for channel, text in self.sent.texts.items()
        )

    def feed(self, event: Event, frame: Frame) -> Frame | None:
        """Return what of the next frame is new to the client; None: it has all of it.

        Raises `PrefixMismatch` where it contradicts what the client has.
        """
        for channel, text in frame.texts:
            self._texts[channel] = self._texts.get(channel, "") + text
        if self._position < len(self.sent.marks):
            self._check_within(frame)
            return None
        for channel, text in self.sent.texts.items():
            own = self._texts.get(channel, "")
            if not (own.startswith(text) or text.startswith(own)):
                raise PrefixMismatch(channel, text, own)
            if frame.rest and len(own) < len(text):
                raise PrefixMismatch(channel, text, own, frame.name)
        return self._trimmed(event, frame)

    def _check_within(self, frame: Frame) -> None:
        """Check a frame that lies before the client's last mark."""
        mark = self.sent.marks[self._position]
        for channel, text in self._texts.items():
            has = self.sent.texts.get(channel, "")[: mark.lengths.get(channel, 0)]
            if not has.startswith(text):
                raise PrefixMismatch(channel, has, text, mark.name)
        if not frame.rest:
            return
        if (frame.name, frame.rest) != (mark.name, mark.rest):
            raise PrefixMismatch(mark.name, mark.rest.decode(), frame.rest.decode())
        for channel, length in mark.lengths.items():
            own = self._texts.get(channel, "")
            if len(own) < length:
                raise PrefixMismatch(channel, self.sent.texts[channel][:length], own, mark.name)
        self._position += 1

    def _trimmed(self, event: Event, frame: Frame) -> Frame | None:
        """Return a frame without the text that the client has."""
        skips: dict[str, int] = {}
        new = bool(frame.rest)
        for channel, text in frame.texts:
            before = len(self._texts[channel]) - len(text)
            skip = min(max(len(self.sent.texts.get(channel, "")) - before, 0), len(text))
            skips[channel] = skip
            new = new or skip < len(text)
        if not new:
            return None
        if frame.rest:
            self._position += 1
        if not any(skips.values()):
            return frame
        texts = tuple((channel, text[skips[channel] :]) for channel, text in frame.texts)
        raw = self.framer.trimmed(event, skips)
        return Frame(raw, frame.name, tuple(t for t in texts if t[1]), frame.rest)
