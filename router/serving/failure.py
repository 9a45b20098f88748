"""Closing: what a client is told where no stack has ended its stream, or none has begun one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from contract.errors import CutoverError
from router.serving.run import Frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

    from contract.flow import Event, FlowSpec, Request
    from router.context import ExchangeContext
    from router.serving.run import RunOutcome


class Unserved(CutoverError):
    """Nothing was sent, and nobody could serve."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"not served: {code}")
        self.status = status
        self.code = code


def unserved(ending: RunOutcome) -> Unserved:
    """Say why nobody could serve."""
    if ending.error is not None and ending.error.code == "resume_mismatch":
        return Unserved(409, ending.error.code)
    if ending.blame == "world" and ending.error is not None:
        return Unserved(503, ending.error.code)
    return Unserved(500, "internal")


def closing_frames(
    spec: FlowSpec, request: Request[Any, Any], ending: RunOutcome, last: Event | None, stamp: int
) -> list[Frame]:
    """Give what ends a stream whose stack has not ended it, behind its `last` event."""
    events = _closing_events(spec, request.options, ending, last)
    return [Frame(stamp, spec.encode(event), event) for event in events]


def _closing_events(
    spec: FlowSpec, options: msgspec.Struct, ending: RunOutcome, last: Event | None
) -> Sequence[Event]:
    if ending.outcome == "paused":
        return spec.suspended(options, last)
    code = ending.error.code if ending.error and ending.blame == "world" else "internal"
    return spec.failure(options, code, last)


log = logging.getLogger(__name__)


def first_ending(ticket: ExchangeContext) -> RunOutcome | None:
    """Give the end of the stack that was tried first, None where it has none."""
    drives = ticket.serving.drives
    return drives[0].ending if drives else None


def tell(ticket: ExchangeContext) -> None:
    """Log what the world outside failed a flow with; a stack's own failures are logged by it."""
    drive = ticket.serving.drives[-1] if ticket.serving.drives else None
    if drive is None or drive.ending is None or drive.ending.blame != "world":
        return
    fault, error = drive.run.fault, drive.ending.error
    log.warning(
        "%s exchange %s failed: %s %s",
        ticket.spec.name,
        ticket.exchange,
        error.code if error else drive.ending.outcome,
        dict(fault.data) if fault else "",
    )
