"""Timing: when each run's client saw what; collected for statistics, never a finding."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from compare.input.captures import Frames
from compare.layers.grammar import Sound
from compare.streams.events import Event, EventReader
from compare.streams.templates import KEPT_AT_MOST, LINE, Template, Thrift, learn


class Times(msgspec.Struct, frozen=True):
    """Microseconds since the exchange began; `text` is None when none was sent.

    `first` is the first event of any kind (TTFE), `text` the first event with text (TTFO),
    `end` the last event.
    """

    first: int
    text: int | None
    end: int


REMEMBERED_UP_TO = 128
REMEMBERED_AT_MOST = 4_096

Mark = tuple[str | None, bool, str | None, bytes | None]
"""One frame skimmed: its event's name (None: a comment), whether it says any text, the track its
text may not shrink on (None: unwatched), and that text as it stands in the line (None: unknown)."""

_NEVER = b"\n"  # no JSON text begins with it
_COMMENT: Mark = (None, False, None, None)
_text = msgspec.json.Decoder(str).decode


@dataclass(slots=True)
class _Run:
    """Frames of one template in a row; `body` is the last one up to the end of its text.

    No quotation mark and no control character stands in a JSON text but behind a backslash, so
    text without a backslash needs no reading.
    """

    name: str
    track: str
    head: int
    body: bytes
    tail: bytes

    def stop(self, texts: dict[str, bytes]) -> None:
        """Hand over how far the text has come."""
        if self.track:
            texts[self.track] = self.body[self.head :]


class Skimmer:
    """Skims the streams of one flow."""

    def __init__(self, reader: EventReader, sound: Sound) -> None:
        self._reader = reader
        self._sound = sound
        self._templates: list[Template[bytes]] = []
        self._thrift = Thrift()
        self._short: dict[bytes, Mark] = {}

    def sound(self, frames: Frames) -> bool:
        """Whether a stream that ended is surely one of its grammar; False: read it.

        Raises `msgspec.DecodeError` or `UnicodeDecodeError` on a frame that is no text.
        """
        names: list[str] = []
        texts: dict[str, bytes] = {}
        run = _Run("", "", 0, _NEVER, b"")
        for _, raw in frames:
            frame = bytes(raw)
            # The usual frame, as the one before but for more text, in as few steps as can be.
            if frame.startswith(run.body) and frame.endswith(run.tail):
                start, end = len(run.body), len(frame) - len(run.tail)
                if start <= end and frame.find(b"\\", start, end) < 0:
                    names.append(run.name)
                    run.body = frame[:end]
                    continue
            run.stop(texts)
            name, _, track, text = self._mark(frame, texts)
            if name is None:
                continue
            names.append(name)
            if track is not None:
                if text is None or not text.startswith(texts.get(track, b"")):
                    return False
                texts[track] = text
                run = self._run(frame, name, track) or run
        self._thrift.used += len(names)
        return self._sound.order(tuple(names))

    def _run(self, frame: bytes, name: str, track: str) -> _Run | None:
        """Begin a run of frames like this one, if its template is known."""
        for template in self._templates:
            if template.holds(frame):
                end = len(frame) - len(template.tail)
                return _Run(name, track, len(template.head), frame[:end], template.tail)
        return None

    def times(self, frames: Frames) -> Times | None:
        """Read a stream's times; None when nothing was sent; raises as `sound` does."""
        first: int | None = None
        for at, raw in frames:
            name, says, _, _ = self._mark(bytes(raw), {})
            if name is None:
                continue
            first = at if first is None else first
            if says:
                return Times(first, at, _end(frames))
        return None if first is None else Times(first, None, _end(frames))

    def _mark(self, frame: bytes, texts: dict[str, bytes]) -> Mark:
        short = len(frame) <= REMEMBERED_UP_TO
        known = self._short.get(frame) if short else None
        if known is not None:
            return known
        for template in self._templates:
            if template.holds(frame):
                return self._filled(template, frame, texts) or self._read(frame)
        mark = self._read(frame)
        if short and len(self._short) < REMEMBERED_AT_MOST:
            self._short[frame] = mark
        return mark

    def _filled(
        self, template: Template[bytes], frame: bytes, texts: dict[str, bytes]
    ) -> Mark | None:
        """Skim a frame of a template; what its text begins with was looked at in another."""
        self._thrift.used += 1
        name = template.event.name
        track = self._sound.growing.get(name)
        start, end = len(template.head), len(frame) - len(template.tail)
        before = texts.get(track, b"") if track is not None else b""
        grows = frame.startswith(before, start, end)
        if not LINE.safe(frame, start + len(before) if grows else start, end):
            return None
        return name, end > start, track, frame[start:end]

    def _read(self, frame: bytes) -> Mark:
        event = self._event(frame)
        if event is None:
            return _COMMENT
        if event.fault is not None:
            return event.name, bool(event.text), "", None  # a track nobody can follow: not sound
        track = self._sound.growing.get(event.name)
        if event.text is None:
            return event.name, False, None, None
        learns = self._thrift.pays and event.name not in self._reader.bound
        template = learn(LINE, frame, event, self._event) if learns else None
        if template is None:
            return event.name, bool(event.text), track, None if event.text else b""
        self._thrift.learnt += 1
        if template not in self._templates:
            self._templates = [template, *self._templates[: KEPT_AT_MOST - 1]]
        text = frame[len(template.head) : len(frame) - len(template.tail)]
        return event.name, True, track, text

    def _event(self, frame: bytes) -> Event | None:
        return self._reader.read(_text(frame))


def _end(frames: Frames) -> int:
    """Give the stamp of the last frame that is no comment."""
    return next(at for at, raw in reversed(frames) if not bytes(raw).startswith(b'":'))
