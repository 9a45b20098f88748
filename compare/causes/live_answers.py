"""Live answers: where a shadow asked the model itself, what follows from its answers is noise.

What comes before the first of them is the pipeline's own, as ever, and so are a stream that breaks
its grammar and a run that ends otherwise by itself. A shadow with conversations of its own, in
which other answers stand than were served, drifts: there noise begins with the contents of its
first question.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, get_args

import msgspec

from compare.causes.differences import Differences, mark
from compare.causes.endings import UNANSWERED, went_on
from compare.findings import (
    CallChanged,
    CallExtra,
    EffectFinding,
    EventLineChanged,
    Finding,
    FrameAdded,
    FrameDropped,
    FrameFinding,
    PromptChanged,
    TextShrank,
    ToolAdded,
)
from compare.input.pairing import Pair
from contract.calls import EffectCall
from contract.equality import EventStream, code_of
from contract.errors import FaultCode
from contract.operations import MODEL_STREAM, TURN_FIND, TURN_HISTORY
from contract.records import OwnHistory, PlayRecord, RunRecord

LIVE_ANSWER: Final = "live answer"
"""What a finding comes `after` that may be no more than another answer of the model."""

OWN_HISTORY: Final = "own history"
"""The same for a shadow in whose history other answers stand than were served."""

_WORLD: Final = frozenset({*get_args(FaultCode), UNANSWERED})
_QUESTIONS: Final = frozenset({MODEL_STREAM.label})
_HISTORIES: Final = frozenset({TURN_HISTORY.label, TURN_FIND.label})


def own_answers(pair: Pair) -> bool:
    """Whether a shadow asked the model itself, beside the run it is compared with."""
    return any(
        run.role == "shadow" and any(play.how == "live" and _asks(play) for play in run.plays)
        for run in (pair.control, pair.candidate)
    )


def own_history(pair: Pair) -> OwnHistory | None:
    """Return what a shadow with conversations of its own read there; None where there is none."""
    runs = (pair.control, pair.candidate)
    return next((run.history for run in runs if run.history is not None), None)


def without_noise(case: Differences) -> tuple[Finding, ...]:
    """List the findings of a pair whose shadow asked the model itself, with noise marked."""
    # What breaks a grammar is no answer, whatever else is found of the same text.
    grammar = [msgspec.structs.replace(broken, after=None) for broken in case.grammar]
    noise = OWN_HISTORY if _drifts(case.pair) else LIVE_ANSWER
    before_question = _before_question(case)
    return (
        *(mark(f, noise if _ended_by_world(case) else None) for f in case.outcome),
        *grammar,
        *(mark(f, None if _own_frame(case, f) else noise) for f in case.frames),
        # A text is not taken back by the model.
        *(mark(f, None if isinstance(f, TextShrank) else noise) for f in case.text),
        *(mark(f, None if before_question(f) else noise) for f in case.effects),
    )


def _drifts(pair: Pair) -> bool:
    """Whether a shadow read earlier answers other than those that were served."""
    history = own_history(pair)
    return history is not None and history.other > 0


def _ended_by_world(case: Differences) -> bool:
    """Whether a model failed, or a call was made that is on no tape."""
    codes = {code_of(case.pair.control), code_of(case.pair.candidate)}
    return bool(codes & (_WORLD - {UNANSWERED} if went_on(case) else _WORLD))


def _own_frame(case: Differences, finding: FrameFinding) -> bool:
    """Whether a frame differs by more than the model's answer."""
    return isinstance(finding, EventLineChanged) or _sent_before_question(case, finding)


def _sent_before_question(case: Differences, finding: FrameFinding) -> bool:
    """Whether a frame was sent before the model was asked."""

    def before(run: RunRecord, stream: EventStream, index: int) -> bool:
        asked = min((play.at for play in run.plays if _asks(play)), default=0)
        return index < len(stream.at) and stream.at[index] <= asked

    legacy = before(case.pair.control, case.legacy, finding.at_legacy)
    graph = before(case.pair.candidate, case.graph, finding.at_graph)
    return (legacy and not isinstance(finding, FrameAdded)) or (
        graph and not isinstance(finding, FrameDropped)
    )


def _before_question(case: Differences) -> Callable[[EffectFinding], bool]:
    """Return a test for calls up to the first question: these are the pipeline's own.

    Where a shadow drifts, the contents of its first question are not its own, nor what it looked
    up by its history.
    """
    legacy, graph = (_places_until(_QUESTIONS, side) for side in case.calls)
    contents = legacy
    if _drifts(case.pair):
        shadow = case.calls[case.pair.candidate.history is not None]
        contents = _places_until(_HISTORIES, shadow)

    def before(finding: EffectFinding) -> bool:
        changed = isinstance(finding, PromptChanged | CallChanged)
        if changed and not finding.path.startswith(contents):
            return False
        one_sided = isinstance(finding, CallExtra | ToolAdded)
        return finding.path.startswith(graph if one_sided else legacy)

    return before


def _places_until(labels: Collection[str], calls: Sequence[EffectCall]) -> tuple[str, ...]:
    """List where the calls stand up to the first of these, that one included."""
    places: list[str] = []
    for call in calls:
        places += (call.place, f"{call.label}@{call.site}→")
        if call.label in labels:
            break
    return tuple(places)


def _asks(play: PlayRecord) -> bool:
    return (play.port, play.op) == (MODEL_STREAM.port, MODEL_STREAM.name)
