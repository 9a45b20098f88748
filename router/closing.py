"""Closing: what a client is told where no stack has ended its stream, or none has begun one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.errors import CutoverError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

    from contract.flow import Event, FlowSpec
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


def closing_events(
    spec: FlowSpec, options: msgspec.Struct, ending: Ending, last: Event | None
) -> Sequence[Event]:
    """Give what ends a stream whose stack has not ended it."""
    if ending.outcome == "paused":
        return spec.suspended(options, last)
    code = ending.error.code if ending.error and ending.blame == "world" else "internal"
    return spec.failure(options, code, last)
