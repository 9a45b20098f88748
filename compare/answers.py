"""Answers: where a shadow asked the model itself, what follows from its answers is noise.

What comes before the first of them is the pipeline's own, as ever, and so are a stream that breaks
its grammar and a run that ends otherwise by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, get_args

import msgspec

from compare.findings import (
    CallExtra,
    EffectFinding,
    Finding,
    FrameAdded,
    FrameDropped,
    FrameFinding,
    OutcomeFinding,
    TextFinding,
    TextShrank,
    ToolAdded,
)
from contract.faults import FaultCode
from contract.operations import MODEL_STREAM

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from compare.calls import Call
    from compare.events import Stream
    from compare.pairs import Pair
    from contract.records import PlayRecord, RunRecord

LIVE_ANSWER: Final = "live answer"
"""What a finding is said to come `after` that may be no more than another answer of the model."""

_WORLD: Final = frozenset({*get_args(FaultCode), "tape_miss"})
F = TypeVar("F", bound=Finding)


def own_answers(pair: Pair) -> bool:
    """Whether a shadow asked the model itself, beside the run it is compared with."""
    return any(
        run.role == "shadow" and any(play.how == "live" and _asks(play) for play in run.plays)
        for run in (pair.control, pair.candidate)
    )


def noisy_outcome(pair: Pair, found: list[OutcomeFinding]) -> list[OutcomeFinding]:
    """Mark endings that are the world's: a model that failed, a call nobody had made."""
    codes = {run.error.code for run in (pair.control, pair.candidate) if run.error}
    return [_marked(finding) if codes & _WORLD else finding for finding in found]


def noisy_text(found: list[TextFinding]) -> list[TextFinding]:
    """Mark texts that differ; one that is taken back was not taken back by the model."""
    return [one if isinstance(one, TextShrank) else _marked(one) for one in found]


def noisy_frames(
    pair: Pair, streams: tuple[Stream, Stream], found: list[FrameFinding]
) -> list[FrameFinding]:
    """Mark frames sent after the model was asked."""
    legacy, graph = streams
    asked = _asked_at(pair.control), _asked_at(pair.candidate)

    def before(finding: FrameFinding) -> bool:
        sides = []
        if not isinstance(finding, FrameAdded):
            sides.append(_sent_by(legacy, finding.at_legacy, asked[0]))
        if not isinstance(finding, FrameDropped):
            sides.append(_sent_by(graph, finding.at_graph, asked[1]))
        return any(sides)

    return [finding if before(finding) else _marked(finding) for finding in found]


def noisy_effects(
    calls: tuple[Sequence[Call], Sequence[Call]], found: Iterable[EffectFinding]
) -> list[EffectFinding]:
    """Mark calls made after the first answer; the first question is the pipeline's own."""
    legacy, graph = map(_until_asked, calls)
    return [
        finding
        if finding.path.startswith(graph if isinstance(finding, CallExtra | ToolAdded) else legacy)
        else _marked(finding)
        for finding in found
    ]


def _until_asked(calls: Sequence[Call]) -> tuple[str, ...]:
    """List where the calls stand up to the first question to the model, that one included."""
    places: list[str] = []
    for call in calls:
        places += (call.place, f"{call.label}@{call.site}→")
        if call.label == MODEL_STREAM.label:
            break
    return tuple(places)


def _asked_at(run: RunRecord) -> int:
    asked = [play.at for play in run.plays if _asks(play)]
    return min(asked, default=0)


def _asks(play: PlayRecord) -> bool:
    return (play.port, play.op) == (MODEL_STREAM.port, MODEL_STREAM.name)


def _sent_by(stream: Stream, index: int, at: int) -> bool:
    return index < len(stream.at) and stream.at[index] <= at


def _marked(finding: F) -> F:
    """Say of a finding that nothing else explains that a live answer may."""
    if finding.after is not None:
        return finding
    marked: F = msgspec.structs.replace(finding, after=LIVE_ANSWER)
    return marked
