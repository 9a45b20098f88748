"""Outcomes of captured exchanges: their served runs alone, one exchange after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from compare.input.captures import damage_of, head_of
from compare.input.damage import ILLEGIBLE, CapturesUnreadable, Damage
from compare.input.segments import CapturedLine, CaptureSegment, find_segments, read_lines
from compare.input.selection import EVERYTHING, Selection
from contract.flow import FlowSpec
from contract.records import FeedbackRecord, RunRecord, Score, decode_run
from evidence.outcomes import ExchangeOutcome, outcome_of

_OTHERS: Final = frozenset({"shadow", "replay"})
"""Roles of runs that no client was served by."""

OnBytes = Callable[[int], None]

_feedback = msgspec.json.Decoder(FeedbackRecord).decode


def read_outcomes(
    place: str,
    flows: Mapping[str, FlowSpec],
    selection: Selection = EVERYTHING,
    on_bytes: OnBytes | None = None,
) -> Iterator[ExchangeOutcome | Damage]:
    """Yield what became of each exchange of these flows in the captures at a path or URL.

    Each once, however often it is read. Remembers about 60 bytes for every exchange, and every
    score; `on_bytes` gets the number of bytes read, piece by piece. Raises `CapturesUnreadable`.
    """
    scores: dict[str, Score] = {}
    for score in read_scores(place):
        if isinstance(score, Damage):
            yield score
        else:
            scores[score.exchange] = score.score
    known: set[int] = set()
    for segment in find_segments(place):
        for runs in _served(segment, on_bytes):
            if isinstance(runs, Damage):
                yield runs
                continue
            first = runs[0]
            spec = flows.get(first.flow)
            if spec is None or not selection.holds(tuple(runs)):
                continue
            found = outcome_of(runs, spec, scores.get(first.exchange))
            if found is None:
                continue
            if (identity := hash(first.exchange)) in known:
                detail = f"exchange {first.exchange!r} was read before"
                yield Damage("duplicate", segment.url, detail)
                continue
            known.add(identity)
            yield found


def read_scores(place: str) -> Iterator[FeedbackRecord | Damage]:
    """Yield the feedback beside captures, the oldest first; raises `CapturesUnreadable`.

    Of several for one exchange the last counts.
    """
    found: list[FeedbackRecord] = []
    for segment in find_segments(place, feedback=True):
        for line in _lines(segment, None):
            if isinstance(line, Damage):
                yield line
                continue
            try:
                found.append(_feedback(line.data))
            except ILLEGIBLE as trouble:
                yield damage_of(line, segment.url, f"{line.place}: {trouble}")
    yield from sorted(found, key=lambda one: one.at)


def scores_of(place: str) -> dict[str, Score]:
    """Return the last score of each exchange with feedback; what cannot be read has none."""
    return {one.exchange: one.score for one in read_scores(place) if not isinstance(one, Damage)}


def _served(
    segment: CaptureSegment, on_bytes: OnBytes | None
) -> Iterator[list[RunRecord] | Damage]:
    """Yield the served runs of each exchange of a segment, which stand side by side."""
    runs: list[RunRecord] = []
    for line in _lines(segment, on_bytes):
        if isinstance(line, Damage):
            yield line
            continue
        if head_of(line.data).role in _OTHERS:
            continue
        try:
            run = decode_run(line.data)
        except ILLEGIBLE as trouble:
            yield damage_of(line, segment.url, f"{line.place}: {trouble}")
            continue
        if runs and runs[0].exchange != run.exchange:
            yield runs
            runs = []
        runs.append(run)
    if runs:
        yield runs


def _lines(segment: CaptureSegment, on_bytes: OnBytes | None) -> Iterator[CapturedLine | Damage]:
    """Read a segment; one that cannot be read is damage."""
    try:
        yield from read_lines(segment, on_bytes)
    except CapturesUnreadable as trouble:
        yield Damage("unreadable", segment.url, trouble.why)
