"""Closing: what a client is told where no stack has ended its stream, or none has begun one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contract.errors import CutoverError
from router.driving import Frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

    from contract.flow import Event, FlowSpec, Request
    from router.driving import Ending


class Unserved(CutoverError):
    """Nothing was sent, and nobody could serve."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"not served: {code}")
        self.status = status
        self.code = code


def unserved(ending: Ending) -> Unserved:
    """Say why nobody could serve."""
    if ending.error is not None and ending.error.code == "resume_mismatch":
        return Unserved(409, ending.error.code)
    if ending.blame == "world" and ending.error is not None:
        return Unserved(503, ending.error.code)
    return Unserved(500, "internal")


def closing_frames(
    spec: FlowSpec, request: Request[Any, Any], ending: Ending, last: Event | None, stamp: int
) -> list[Frame]:
    """Give what ends a stream whose stack has not ended it, behind its `last` event."""
    events = _closing_events(spec, request.options, ending, last)
    return [Frame(stamp, spec.encode(event), event) for event in events]


def _closing_events(
    spec: FlowSpec, options: msgspec.Struct, ending: Ending, last: Event | None
) -> Sequence[Event]:
    if ending.outcome == "paused":
        return spec.suspended(options, last)
    code = ending.error.code if ending.error and ending.blame == "world" else "internal"
    return spec.failure(options, code, last)
