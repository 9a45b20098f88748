"""Traces for load runs: when the captured requests of a flow came, and what they asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from compare.input.blobs import BlobFolder, BlobMissing
from compare.input.damage import ILLEGIBLE, Damage
from compare.input.segments import CaptureSegment, Days, find_segments, read_lines
from contract.blobs import put_back
from contract.errors import CutoverError
from contract.records import RequestRecord

MICROSECONDS = 1_000_000


class NothingCaptured(CutoverError):
    """Captures hold no request of a flow."""

    def __init__(self, captures: str, flow: str) -> None:
        super().__init__(f"--trace {captures!r} holds no request of the flow {flow!r}")


class CapturedRequest(NamedTuple):
    """One request: when it came, microseconds since the Unix epoch, and its body as JSON."""

    began: int
    body: bytes


class _Line(msgspec.Struct):
    flow: str = ""
    role: str = ""
    began: int = 0
    request: RequestRecord | None = None


_line = msgspec.json.Decoder(_Line).decode


def captured_requests(captures: str, flow: str) -> list[CapturedRequest]:
    """Read the requests of a flow that were served, in the order they came.

    What is damaged, or lacks a text that was put beside it, is left out. Raises
    `CapturesUnreadable`, and `NothingCaptured` where nothing is left.
    """
    segments = find_segments(captures, days=Days(flow))
    found = sorted(one for segment in segments for one in _requests(segment, flow))
    if not found:
        raise NothingCaptured(captures, flow)
    return found


def _requests(segment: CaptureSegment, flow: str) -> Iterator[CapturedRequest]:
    blobs = BlobFolder(segment.url)
    for line in read_lines(segment):
        if isinstance(line, Damage):
            continue
        try:
            run = _line(line.data)
        except ILLEGIBLE:
            continue
        if run.flow == flow and run.role == "serving" and run.request is not None:
            yield from _restored(run.began, run.request.body, blobs.fetch)


def _restored(
    began: int, body: msgspec.Raw, fetch: Callable[[str], bytes]
) -> Iterator[CapturedRequest]:
    try:
        yield CapturedRequest(began, bytes(put_back(body, fetch)))
    except BlobMissing:
        return


def trace_of(requests: list[CapturedRequest], bodies: Path) -> tuple[float, ...]:
    """Return the moments of at least one request, seconds from the first; write their bodies."""
    bodies.write_bytes(b"".join(request.body + b"\n" for request in requests))
    return tuple((request.began - requests[0].began) / MICROSECONDS for request in requests)
