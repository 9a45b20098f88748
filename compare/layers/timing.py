"""Timing: when each run's client saw what; collected for statistics, never a finding."""

from __future__ import annotations

import msgspec


class Times(msgspec.Struct, frozen=True):
    """Microseconds since the exchange began; `text` is None when none was sent.

    `first` is the first event of any kind (TTFE), `text` the first event with text (TTFO),
    `end` the last event.
    """

    first: int
    text: int | None
    end: int
