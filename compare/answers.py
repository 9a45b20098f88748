"""Answers: where a shadow asked the model itself, what follows from its answers is noise.

What comes before the first of them is the pipeline's own, as ever, and so are a stream that breaks
its grammar and a run that ends otherwise by itself. Where it was told earlier answers of its own,
what follows is drift, and that begins with what is said in the first question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, get_args

import msgspec

from compare.findings import (
    CallChanged,
    CallExtra,
    EffectFinding,
    Finding,
    FrameAdded,
    FrameDropped,
    FrameFinding,
    OutcomeFinding,
    PromptChanged,
    TextFinding,
    TextShrank,
    ToolAdded,
)
from contract.errors import FaultCode
from contract.operations import MODEL_STREAM, TURN_FIND, TURN_HISTORY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from compare.calls import Call
    from compare.events import Stream
    from compare.pairs import Pair
    from contract.records import OwnHistory, PlayRecord, RunRecord

LIVE_ANSWER: Final = "live answer"
"""What a finding is said to come `after` that may be no more than another answer of the model."""

OWN_HISTORY: Final = "own history"
"""The same of a shadow that was told other answers of its own than were served before."""

_WORLD: Final = frozenset({*get_args(FaultCode), "tape_miss"})
_ASKING: Final = frozenset({MODEL_STREAM.label})
_TELLING: Final = frozenset({TURN_HISTORY.label, TURN_FIND.label})
F = TypeVar("F", bound=Finding)


def own_answers(pair: Pair) -> bool:
    """Whether a shadow asked the model itself, beside the run it is compared with."""
    return any(
        run.role == "shadow" and any(play.how == "live" and _asks(play) for play in run.plays)
        for run in (pair.control, pair.candidate)
    )


def own_history(pair: Pair) -> OwnHistory | None:
    """Tell what a shadow with conversations of its own was told; None where there is none."""
    runs = (pair.control, pair.candidate)
    return next((run.history for run in runs if run.history is not None), None)


def drifts(pair: Pair) -> bool:
    """Whether a shadow was told earlier answers other than those that were served."""
    told = own_history(pair)
    return told is not None and told.other > 0


def noisy_outcome(pair: Pair, found: list[OutcomeFinding]) -> list[OutcomeFinding]:
    """Mark endings that are the world's: a model that failed, a call nobody had made."""
    codes = {run.error.code for run in (pair.control, pair.candidate) if run.error}
    return [_marked(pair, finding) if codes & _WORLD else finding for finding in found]


def noisy_text(pair: Pair, found: list[TextFinding]) -> list[TextFinding]:
    """Mark texts that differ; one that is taken back was not taken back by the model."""
    return [one if isinstance(one, TextShrank) else _marked(pair, one) for one in found]


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

    return [finding if before(finding) else _marked(pair, finding) for finding in found]


def noisy_effects(
    pair: Pair, calls: tuple[Sequence[Call], Sequence[Call]], found: Iterable[EffectFinding]
) -> list[EffectFinding]:
    """Mark calls made after the first answer; the first question is the pipeline's own.

    Of a shadow with another history what is said in the first question is not, nor what it looked
    up by that history.
    """
    legacy, graph = (_until(_ASKING, side) for side in calls)
    shadow = calls[pair.candidate.history is not None]
    told = _until(_TELLING, shadow) if drifts(pair) else legacy

    def own(finding: EffectFinding) -> bool:
        if isinstance(finding, PromptChanged | CallChanged) and not finding.path.startswith(told):
            return False
        one_sided = isinstance(finding, CallExtra | ToolAdded)
        return finding.path.startswith(graph if one_sided else legacy)

    return [finding if own(finding) else _marked(pair, finding) for finding in found]


def _until(labels: Collection[str], calls: Sequence[Call]) -> tuple[str, ...]:
    """List where the calls stand up to the first of these, that one included."""
    places: list[str] = []
    for call in calls:
        places += (call.place, f"{call.label}@{call.site}→")
        if call.label in labels:
            break
    return tuple(places)


def _asked_at(run: RunRecord) -> int:
    asked = [play.at for play in run.plays if _asks(play)]
    return min(asked, default=0)


def _asks(play: PlayRecord) -> bool:
    return (play.port, play.op) == (MODEL_STREAM.port, MODEL_STREAM.name)


def _sent_by(stream: Stream, index: int, at: int) -> bool:
    return index < len(stream.at) and stream.at[index] <= at


def _marked(pair: Pair, finding: F) -> F:
    """Say of a finding that nothing else explains what may: a live answer, or another history."""
    if finding.after is not None:
        return finding
    after = OWN_HISTORY if drifts(pair) else LIVE_ANSWER
    marked: F = msgspec.structs.replace(finding, after=after)
    return marked
