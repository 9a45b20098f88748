"""What the gate said last: read from the state that `cutover ramp` on this host keeps."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

FRESH_SECONDS = 3_600.0
"""A look that is older says nothing of now."""


class _Look(msgspec.Struct):
    at: float
    verdict: str


class _State(msgspec.Struct):
    look: _Look | None = None


_decoder = msgspec.json.Decoder(_State)


def gate_verdicts(folder: Path, flows: Iterable[str], now: float) -> dict[str, str]:
    """Return the verdict of each flow's last look, by flow; `now` in Unix seconds.

    A flow without a ramp has none, and so has one whose state cannot be read: its ramp reports it.
    """
    found = {}
    for flow in flows:
        try:
            look = _decoder.decode((folder / f"{flow}.json").read_bytes()).look
        except (OSError, msgspec.MsgspecError):
            continue
        if look is not None and now - look.at < FRESH_SECONDS:
            found[flow] = look.verdict
    return found
