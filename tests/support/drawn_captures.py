"""Captures of drawn rollouts: records as the recorder encodes them, feedback beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from contract.records import VERSION, ErrorRecord, FeedbackRecord, RunRecord, encode_run
from evidence.outcomes import ExchangeOutcome
from tests.support.records import a_request, a_run


def frame(name: str, text: str | None = None) -> str:
    """Return a frame of the chat flow."""
    content = {"content": text} if text is not None else {}
    return f"data: {msgspec.json.encode({'step': name, **content}).decode()}\n\n"


def write_captures(folder: Path, outcomes: Iterable[ExchangeOutcome], shadow: str = "") -> Path:
    """Write captures of outcomes; with `shadow` the other stack answers so beside every one."""
    lines = (encode_run(run) for one in outcomes for run in runs_of(one, shadow))
    segment = folder / "captures" / "flow=chat" / "a.jsonl"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b"".join(lines))
    scores = folder / "captures" / "feedback" / "date=2026-11-18" / "a.jsonl"
    scores.parent.mkdir(parents=True)
    scores.write_bytes(msgspec.json.Encoder().encode_lines(scores_of(outcomes)))
    return folder / "captures"


def scores_of(outcomes: Iterable[ExchangeOutcome]) -> Iterator[FeedbackRecord]:
    """Yield the ratings of outcomes."""
    for one in outcomes:
        if one.feedback is not None:
            yield FeedbackRecord(
                v=VERSION, exchange=one.exchange, score=one.feedback, at=one.began + 1
            )


def runs_of(one: ExchangeOutcome, shadow: str = "") -> Iterator[RunRecord]:
    """Yield the records of one exchange: a failed run first where another stack served."""
    facts = {
        "began": one.began,
        "assigned": one.assigned,
        "served": one.served,
        "bucket": one.bucket,
        "config": one.config,
        "reason": one.reason,
        "assigned_by": one.assigned_by if one.assigned_by != one.reason else "",
    }
    times = one.first_frame or 0, one.first_text or 0, one.last_frame or 0
    stream = tuple(zip(times, (frame("ACCEPT"), frame("SEND", "hi"), frame("END")), strict=True))
    body = {"message_id": one.exchange, "chat_id": one.conversation, "content": "hello"}
    request = a_request(body)
    if one.fallback:
        error = ErrorRecord(one.reason)
        yield a_run(
            one.exchange,
            stack=one.assigned,
            request=request,
            outcome="failed",
            error=error,
            **facts,
        )
        yield a_run(one.exchange, stack=one.served, role="fallback", frames=stream, **facts)
        return
    yield a_run(one.exchange, stack=one.served, request=request, frames=stream, **facts)
    if shadow:
        other = "legacy" if one.served == "graph" else "graph"
        frames = ((1, frame("ACCEPT")), (2, frame("SEND", shadow)), (3, frame("END")))
        yield a_run(one.exchange, stack=other, role="shadow", frames=frames, **facts)
