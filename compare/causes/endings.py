"""Endings: what a run that ended lacks follows from its end, and the end from what led there."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from compare.causes.differences import COMPLETED, Differences, first
from compare.findings import (
    CallExtra,
    CallSkipped,
    EffectFinding,
    FrameFinding,
    SiteChanged,
    ToolAdded,
    ToolDropped,
    WriteOrder,
)
from compare.layers.text import went_past
from contract.calls import EffectCall
from contract.equality import code_of
from contract.operations import CLOCK_NOW, IDS_NEW, LOCK_RELEASE, TURN_PUT

UNANSWERED = "tape_miss"
# Codes a run's error can have: a frame behind the terminal one counts as a stream without an end.
_ENDED_BY_GRAMMAR = frozenset({"grammar", "truncated"})
_LAST_CALLS = frozenset(op.label for op in (TURN_PUT, LOCK_RELEASE, CLOCK_NOW, IDS_NEW))
"""What a run may still call once it knows that it will fail."""
_LACKING = CallSkipped | CallExtra | ToolDropped | ToolAdded


def why_ended(case: Differences) -> str | None:
    """A run ended because it broke its grammar, or because nothing could answer its call.

    One that went on where the other ended did so for it did not make the call that ended the other.
    """
    decisive = _last_call(case)
    if decisive is not None or went_on(case):
        return decisive
    for side, run in (("legacy", case.pair.control), ("graph", case.pair.candidate)):
        code = code_of(run)
        if code in _ENDED_BY_GRAMMAR:
            broken = first([f for f in case.grammar if f.side == side])
            if broken:
                return broken
        if code == UNANSWERED:
            missed = [f for f in case.effects if isinstance(f, CallExtra | ToolAdded) and f.missed]
            # No tape answers a call that was made under another site, either.
            return first(missed) or first([f for f in case.effects if isinstance(f, SiteChanged)])
    return None


def _last_call(case: Differences) -> str | None:
    """Find the call at which legacy ended by itself, if graph made all others and went on.

    A lock that was released early says itself why graph's next call is another one.
    """
    ended, (answered, asked) = case.pair.control, case.calls
    if went_past(ended) or code_of(ended) in _ENDED_BY_GRAMMAR or not answered:
        return None
    if not went_past(case.pair.candidate) or any(isinstance(f, WriteOrder) for f in case.effects):
        return None
    *others, last = answered
    reached = _reached(asked)
    if not all(call.entry in reached for call in others):
        return None
    return first([f for f in case.effects if isinstance(f, CallSkipped) and f.path == last.place])


def _reached(asked: Iterable[EffectCall]) -> set[int | None]:
    """Return the entries that answered the calls of a run, up to the first nothing could answer."""
    return {call.entry for call in takewhile(lambda call: call.how != "missed", asked)}


def went_on(case: Differences) -> bool:
    """Whether one run went on where the other had ended: that is the cause of what it did then.

    The tape of a run that ended answers no further call; one that had not come so far when its
    call was missed left the way before.
    """
    runs = case.pair.control, case.pair.candidate
    for (asking, ended), (asked, answered) in ((runs[::-1], case.calls[::-1]), (runs, case.calls)):
        if went_past(ended) or code_of(ended) in _ENDED_BY_GRAMMAR or not went_past(asking):
            continue
        reached = _reached(asked)
        if all(call.entry in reached or call.label in _LAST_CALLS for call in answered):
            return True
    return False


def why_frame_lacks(case: Differences, finding: FrameFinding) -> str | None:
    """What stands at the end of one stream only follows from how the runs ended."""
    return ending_of(case) if _reaches_end(case, finding) else None


def why_text_lacks(case: Differences) -> str | None:
    """A run that ended early says less, or says that it failed."""
    ended = ending_of(case)
    if ended and _broke_off(case):
        return ended
    if {case.pair.control.outcome, case.pair.candidate.outcome} > {COMPLETED} and case.outcome:
        # A run that fails or refuses may say so in the text.
        return first(case.outcome)
    return None


def why_call_lacks(case: Differences, finding: EffectFinding) -> str | None:
    """A run that ended early asks less; one that went on asks more."""
    if not (case.outcome and isinstance(finding, _LACKING)):
        return None
    ending = case.outcome[0]
    cause = ending.after or first(case.outcome)
    if went_on(case):
        return cause
    # What a run lacks that ended at a call no tape answers follows from that, too.
    runs = case.pair.control, case.pair.candidate
    unanswered = any(code_of(run) == UNANSWERED for run in runs)
    lacking = runs[isinstance(finding, CallSkipped | ToolDropped)]
    ended = ending.after is None or unanswered
    return cause if ended and lacking.outcome != COMPLETED else None


def ending_of(case: Differences) -> str | None:
    """Find the outcome, or the breach that neither stream came to its end.

    Each may have broken that off alone.
    """
    length = len(case.graph.events)
    both = [f for f in case.grammar if f.side == "both" and f.at >= length]
    return first(case.outcome) or first(both)


def _reaches_end(case: Differences, finding: FrameFinding) -> bool:
    """Whether nothing both runs sent comes behind the finding, but the frames that end a stream."""
    return (
        finding.at_legacy + finding.count >= len(case.legacy.events) - 1
        or finding.at_graph + finding.count >= len(case.graph.events) - 1
    )


def _broke_off(case: Differences) -> bool:
    """Whether the text of a run that did not complete is the beginning of the other's."""
    legacy, graph = case.legacy.text, case.graph.text
    runs = case.pair.control, case.pair.candidate
    whole = [run.outcome == COMPLETED for run in runs]
    if whole == [True, False]:
        return legacy.startswith(graph)
    if whole == [False, True]:
        return graph.startswith(legacy)
    return legacy.startswith(graph) or graph.startswith(legacy)
