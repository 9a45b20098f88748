"""Streams and rows made by hand, on exact clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from contract.flows.chat import CHAT, ChatEvent
from loadtests.meter import How, Planned, StreamMeter
from loadtests.rows import LoadRow

MS = 1_000_000
SENT = 5_000 * MS
SCHEDULED = SENT - 3 * MS


def measured(
    events: Sequence[tuple[int, ChatEvent | bytes]],
    how: How = "done",
    *,
    at: int = 1_000,
    stall: float = 2.0,
) -> LoadRow:
    """Play (milliseconds after sending, event or raw bytes) to a meter; `at` is the end."""
    meter = StreamMeter(CHAT, Planned(0, "legacy", "m", SCHEDULED), SENT, stall=stall)
    meter.started(200, {}, SENT + 10 * MS)
    for after, event in events:
        meter.body(event if isinstance(event, bytes) else CHAT.encode(event), SENT + after * MS)
    return meter.row(how, SENT + at * MS, code="closed")


def row(**changed: Any) -> LoadRow:
    """Make a complete row: first text after 100 ms, last after 300, end after 310."""
    whole = LoadRow(
        run=0,
        stack="legacy",
        flow="chat",
        message_id="m",
        scheduled=SCHEDULED,
        sent=SENT,
        status=200,
        headers=10 * MS,
        first_event=20 * MS,
        first_token=100 * MS,
        first_text=100 * MS,
        last_content=300 * MS,
        terminal=310 * MS,
        ended=311 * MS,
        ending="complete",
        events=6,
        contents=3,
        gaps=(50_000, 150_000),
    )
    return msgspec.structs.replace(whole, **changed)
