"""Failures as a client sees them: where no stack has ended its stream, or none has begun one."""

from __future__ import annotations

from typing import Any

from contract.errors import CutoverError
from contract.flow import Event, FlowSpec, Request
from contract.records import ErrorRecord
from router.serving.run import Frame
from router.stack import RunOutcome

STOPPING = RunOutcome("failed", "world", ErrorRecord("stopping"))
"""The router cut the stream off because it stops."""
CLAIM_LOST = RunOutcome("failed", "world", ErrorRecord("claim_lost"))
"""It resumed from a pause that another router may have resumed by now."""


class NotServed(CutoverError):
    """Nothing was sent, and no stack could serve."""

    def __init__(self, outcome: RunOutcome) -> None:
        error = outcome.error.code if outcome.error is not None else ""
        self.status, self.code = 500, "internal"
        if error == "resume_mismatch":
            self.status, self.code = 409, error
        elif error and outcome.blame == "world":
            self.status, self.code = 503, error
        super().__init__(f"not served: {self.code}")


def closing_frames(
    spec: FlowSpec, request: Request[Any, Any], outcome: RunOutcome, last: Event | None, stamp: int
) -> list[Frame]:
    """Return the frames that end a stream whose stack has not ended it, after its `last` event."""
    if outcome.kind == "paused":
        events = spec.suspended(request.options, last)
    else:
        code = outcome.error.code if outcome.error and outcome.blame == "world" else "internal"
        events = spec.failure(request.options, code, last)
    return [Frame(stamp, spec.encode(event), event) for event in events]
