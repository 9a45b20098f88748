"""Timing: when each run's client saw what; collected for statistics, never a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from compare.events import EventReader
    from contract.records import RunRecord


class Times(msgspec.Struct, frozen=True):
    """Microseconds since the exchange began; `text` is None when none was sent.

    `first` is the first event of any kind (TTFE), `text` the first event with text (TTFO),
    `end` the last event.
    """

    first: int
    text: int | None
    end: int


def times_of(run: RunRecord, reader: EventReader) -> Times | None:
    """Read a run's times; None when it sent nothing."""
    frames = [frame for frame in run.frames if not frame[1].startswith(":")]
    if not frames:
        return None
    text = next((at for at, frame in frames if _has_text(reader, frame)), None)
    return Times(frames[0][0], text, frames[-1][0])


def _has_text(reader: EventReader, frame: str) -> bool:
    event = reader.read(frame)
    return event is not None and bool(event.text)
