"""Settle: which finding follows from which, layer by layer, outside in."""

from __future__ import annotations

from compare.causes.differences import Differences, first, mark
from compare.causes.endings import (
    why_call_lacks,
    why_ended,
    why_frame_lacks,
    why_text_lacks,
)
from compare.causes.live_answers import own_answers, without_noise
from compare.causes.recurrences import mark_recurrences
from compare.causes.unread import why_frame_unread, why_grammar, why_text_unread
from compare.findings import (
    ARROW,
    CadenceChanged,
    CallExtra,
    CallSkipped,
    EffectFinding,
    Finding,
    FrameFinding,
    FrameOrder,
    ParameterChanged,
    PromptChanged,
    ReadOrder,
    ReasoningChanged,
    RefusalAsText,
    TextChanged,
    TextFinding,
    TextLate,
    TextShrank,
    ToolAdded,
    ToolDropped,
    WriteChanged,
    WriteOrder,
    signature_of,
)
from compare.layers.text import REFUSAL
from contract.operations import LOCK_RELEASE, MODEL_STREAM


def settle(case: Differences) -> tuple[Finding, ...]:
    """Mark what follows from what, in the order in which causes reach outwards."""
    case.outcome = [mark(f, why_ended(case)) for f in case.outcome]
    case.frames = [mark(f, _why_frame(case, f)) for f in case.frames]
    case.grammar = [mark(f, why_grammar(case, f)) for f in case.grammar]
    case.text = [mark(f, _why_text(case, f)) for f in case.text]
    case.effects = [mark(f, _why_effect(case, f)) for f in case.effects]
    mark_recurrences(case)
    if own_answers(case.pair):
        return without_noise(case)
    return (*case.outcome, *case.grammar, *case.frames, *case.text, *case.effects)


def _why_frame(case: Differences, finding: FrameFinding) -> str | None:
    """The grammar forbids the frame, its run ended early, or its tool call is gone."""
    if isinstance(finding, CadenceChanged):  # a text that is taken back was cut elsewhere, too
        shrank = first([f for f in case.text if isinstance(f, TextShrank)])
        if shrank:
            return shrank
    if finding.path.endswith(f".{REFUSAL}"):
        told = first([f for f in case.text if isinstance(f, RefusalAsText)])
        if told:
            return told
    cause = why_frame_unread(case, finding) or why_frame_lacks(case, finding)
    if cause:
        return cause
    for effect in case.effects:
        if isinstance(effect, ToolDropped | ToolAdded):
            quoted = f'"{effect.tool}"'
            if any(quoted in (value or "") for value in (finding.legacy, finding.graph)):
                return signature_of(effect)
    return None


def _why_text(case: Differences, finding: TextFinding) -> str | None:
    """A run that ended early says less; a model that was asked otherwise answers otherwise."""
    lacks = why_text_lacks(case)
    if lacks:
        return lacks
    asked_alone = [f for f in case.effects if isinstance(f, CallSkipped | CallExtra)]
    answered = first([f for f in asked_alone if f.path.startswith(MODEL_STREAM.label)])
    if answered and isinstance(finding, TextChanged | ReasoningChanged):
        return answered
    unread = why_text_unread(case, finding)
    if unread:
        return unread
    if not case.same_tape:
        asked = PromptChanged | ParameterChanged
        return first([f for f in case.effects if isinstance(f, asked)])
    if isinstance(finding, TextLate):
        cadence = first([f for f in case.frames if isinstance(f, CadenceChanged)])
        if cadence:
            return cadence
        return first([f for f in case.grammar if f.shrank])
    return None


def _why_effect(case: Differences, finding: EffectFinding) -> str | None:
    """A run that ended early asks less; a changed reply is stored as it was changed."""
    if isinstance(finding, CallExtra) and finding.path.startswith(LOCK_RELEASE.label):
        early = first([f for f in case.effects if isinstance(f, WriteOrder)])
        if early:  # that it comes earlier is why there is one more
            return early
    lacks = why_call_lacks(case, finding)
    if lacks:
        return lacks
    if isinstance(finding, WriteOrder | ReadOrder):
        frames = [f for f in case.effects if isinstance(f, FrameOrder)]
        return first([f for f in frames if not _early(f) and _one_move(f, finding)])
    if isinstance(finding, FrameOrder) and _early(finding):
        calls = [f for f in case.effects if isinstance(f, WriteOrder)]
        return first([f for f in calls if _one_move(finding, f)])
    texts = case.legacy.text, case.graph.text
    if isinstance(finding, WriteChanged) and (finding.legacy, finding.graph) == texts:
        return first([f for f in case.text if isinstance(f, TextChanged)])
    return None


def _early(moved: FrameOrder) -> bool:
    """Whether graph made before the frame what legacy made behind it.

    What comes too late is told by the frame it belongs before, what comes too early by the calls.
    """
    return _steps(moved.legacy)[:1] == [moved.path.split(".")[1]]


def _one_move(frames: FrameOrder, calls: WriteOrder | ReadOrder) -> bool:
    """Whether what moved past a frame is what moved past other calls."""
    moved = _steps(frames.legacy)
    old, new = (
        [it for it in _steps(side) if it not in moved] for side in (calls.legacy, calls.graph)
    )
    return old == new


def _steps(order: str | None) -> list[str]:
    return (order or "").split(ARROW)
