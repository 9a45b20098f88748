"""Answers: where a shadow asked the model itself, what follows from its answers is noise.

What comes before the first of them is the pipeline's own, as ever, and so are a stream that breaks
its grammar and a run that ends otherwise by itself. Where it was told earlier answers of its own,
what follows is drift, and that begins with what is said in the first question.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar, get_args

import msgspec

from compare.findings import (
    CallChanged,
    CallExtra,
    CallSkipped,
    EffectFinding,
    Finding,
    FrameAdded,
    FrameChanged,
    FrameDropped,
    FrameFinding,
    GrammarBroken,
    OutcomeFinding,
    ParameterChanged,
    PromptChanged,
    ReasoningChanged,
    SiteChanged,
    TextChanged,
    TextFinding,
    TextLate,
    TextShrank,
    ToolAdded,
    ToolDropped,
    WriteChanged,
    signature_of,
)
from compare.input.calls import Call
from compare.input.pairing import Pair
from compare.streams.events import Stream
from contract.errors import FaultCode
from contract.operations import MODEL_STREAM, TURN_FIND, TURN_HISTORY
from contract.records import OwnHistory, PlayRecord, RunRecord

LIVE_ANSWER: Final = "live answer"
"""What a finding is said to come `after` that may be no more than another answer of the model."""

OWN_HISTORY: Final = "own history"
"""The same of a shadow that was told other answers of its own than were served before."""

_WORLD: Final = frozenset({*get_args(FaultCode), "tape_miss"})
_ASKING: Final = frozenset({MODEL_STREAM.label})
_TELLING: Final = frozenset({TURN_HISTORY.label, TURN_FIND.label})
Marked = TypeVar("Marked", bound=Finding)


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


def _marked(pair: Pair, finding: Marked) -> Marked:
    """Say of a finding that nothing else explains what may: a live answer, or another history."""
    if finding.after is not None:
        return finding
    after = OWN_HISTORY if drifts(pair) else LIVE_ANSWER
    marked: Marked = msgspec.structs.replace(finding, after=after)
    return marked


F = TypeVar("F", bound=Finding)
COMPLETED = "completed"
# Codes a run's error can have: a frame behind the terminal one counts as a stream without an end.
_ENDED_BY_GRAMMAR = frozenset({"grammar", "truncated"})
_UNANSWERED = "tape_miss"
_ARGUMENTS = ".tool_call.arguments"


@dataclass(slots=True)
class Case:
    """Everything found between two runs, layer by layer."""

    pair: Pair
    legacy: Stream
    graph: Stream
    same_tape: bool
    calls: tuple[list[Call], list[Call]]
    outcome: list[OutcomeFinding] = field(default_factory=list)
    grammar: list[GrammarBroken] = field(default_factory=list)
    frames: list[FrameFinding] = field(default_factory=list)
    text: list[TextFinding] = field(default_factory=list)
    effects: list[EffectFinding] = field(default_factory=list)

    def findings(self) -> tuple[Finding, ...]:
        """All findings, outside in."""
        return (*self.outcome, *self.grammar, *self.frames, *self.text, *self.effects)


def settle(case: Case) -> tuple[Finding, ...]:
    """Mark what follows from what; rules in the order in which causes reach outwards."""
    case.outcome = [_mark(f, _why_ended(case)) for f in case.outcome]
    case.frames = [_mark(f, _why_frame(case, f)) for f in case.frames]
    case.grammar = [_mark(f, _why_grammar(case, f)) for f in case.grammar]
    case.text = [_mark(f, _why_text(case, f)) for f in case.text]
    case.effects = [_mark(f, _why_effect(case, f)) for f in case.effects]
    if own_answers(case.pair):
        _leave_out_answers(case)
    return case.findings()


def _leave_out_answers(case: Case) -> None:
    """Mark what may be no more than another answer to the same question."""
    # What breaks a grammar is no answer, whatever else is found of the same text.
    case.grammar = [msgspec.structs.replace(broken, after=None) for broken in case.grammar]
    case.outcome = noisy_outcome(case.pair, case.outcome)
    case.frames = noisy_frames(case.pair, (case.legacy, case.graph), case.frames)
    case.text = noisy_text(case.pair, case.text)
    case.effects = noisy_effects(case.pair, case.calls, case.effects)


def _mark(finding: F, cause: str | None) -> F:
    if cause is None or finding.after is not None or cause == signature_of(finding):
        return finding
    marked: F = msgspec.structs.replace(finding, after=cause)
    return marked


def _first(findings: list[F]) -> str | None:
    return signature_of(findings[0]) if findings else None


def _why_ended(case: Case) -> str | None:
    """A run ended because it broke its grammar, or because nothing could answer its call."""
    for side, run in (("legacy", case.pair.control), ("graph", case.pair.candidate)):
        code = run.error.code if run.error else ""
        if code in _ENDED_BY_GRAMMAR:
            broken = _first([f for f in case.grammar if f.side == side])
            if broken:
                return broken
        if code == _UNANSWERED:
            missed = [f for f in case.effects if isinstance(f, CallExtra | ToolAdded) and f.missed]
            # No tape answers a call that was made under another site, either.
            return _first(missed) or _first([f for f in case.effects if isinstance(f, SiteChanged)])
    return None


def _why_frame(case: Case, finding: FrameFinding) -> str | None:
    """The grammar forbids the frame, its run ended early, or its tool call is gone."""
    for broken in case.grammar:
        if _forbidden(finding, broken) or _lost_a_piece(case, finding, broken):
            return signature_of(broken)
    if _reaches_end(case, finding):
        broke_off = _first(case.outcome) or _cut_on_both(case)
        if broke_off:
            return broke_off
    for effect in case.effects:
        if isinstance(effect, ToolDropped | ToolAdded) and _names(finding, effect.tool):
            return signature_of(effect)
    return None


def _forbidden(finding: FrameFinding, broken: GrammarBroken) -> bool:
    """Whether a frame one side sent too many is the one its grammar stumbled over."""
    on_legacy = broken.side == "legacy" and not isinstance(finding, FrameAdded)
    if on_legacy and _within(broken.at, finding.at_legacy, finding.count):
        return True
    on_graph = broken.side == "graph" and not isinstance(finding, FrameDropped)
    return on_graph and _within(broken.at, finding.at_graph, finding.count)


def _lost_a_piece(case: Case, finding: FrameFinding, broken: GrammarBroken) -> bool:
    """Whether arguments put together from many frames may lack what stood in an illegible one."""
    if not isinstance(finding, FrameChanged) or _ARGUMENTS not in finding.path:
        return False
    stream, at = case.graph, finding.at_graph
    if broken.side == "legacy":
        stream, at = case.legacy, finding.at_legacy
    if not at < broken.at < len(stream.events):
        return False
    return stream.events[broken.at].fault is not None


def _cut_on_both(case: Case) -> str | None:
    """Give the breach that neither stream came to its end, which each may have broken off alone."""
    length = len(case.graph.events)
    return _first([f for f in case.grammar if f.side == "both" and f.at >= length])


def _within(at: int, start: int, count: int) -> bool:
    return start <= at < start + count


def _reaches_end(case: Case, finding: FrameFinding) -> bool:
    """Whether nothing both runs sent comes behind the finding, but the frames that end a stream."""
    return (
        finding.at_legacy + finding.count >= len(case.legacy.events) - 1
        or finding.at_graph + finding.count >= len(case.graph.events) - 1
    )


def _names(finding: FrameFinding, tool: str) -> bool:
    quoted = f'"{tool}"'
    return any(quoted in (value or "") for value in (finding.legacy, finding.graph))


def _why_grammar(case: Case, broken: GrammarBroken) -> str | None:
    """A text that was changed shrank, or a frame that is missing left a hole."""
    if broken.shrank:
        changed = _first([f for f in case.text if isinstance(f, TextChanged)])
        if changed:
            return changed
    for finding in case.frames:
        if finding.after is None and _left_a_hole(case, finding, broken):
            return signature_of(finding)
    return None


def _left_a_hole(case: Case, finding: FrameFinding, broken: GrammarBroken) -> bool:
    """Whether the grammar stumbles where the other side has a frame more."""
    if isinstance(finding, FrameDropped) and broken.side == "graph":
        return finding.at_graph <= broken.at <= _next_firm(case.graph, finding.at_graph)
    if isinstance(finding, FrameAdded) and broken.side == "legacy":
        return finding.at_legacy <= broken.at <= _next_firm(case.legacy, finding.at_legacy)
    return False


def _next_firm(stream: Stream, at: int) -> int:
    """Index of the next event that is more than text, for those alone are always aligned."""
    rest = range(at, len(stream.events))
    return next((k for k in rest if not stream.events[k].bare), len(stream.events))


def _why_text(case: Case, finding: TextFinding) -> str | None:
    """A run that ended early says less; a model that was asked otherwise answers otherwise."""
    broke_off = _first(case.outcome) or _cut_on_both(case)
    if broke_off and _broke_off(case):
        return broke_off
    for broken in case.grammar:
        if isinstance(finding, TextChanged | ReasoningChanged) and _illegible(case, broken):
            return signature_of(broken)
    if not case.same_tape:
        asked = PromptChanged | ParameterChanged
        return _first([f for f in case.effects if isinstance(f, asked)])
    if isinstance(finding, TextLate):
        return _first([f for f in case.grammar if f.shrank])
    return None


def _illegible(case: Case, broken: GrammarBroken) -> bool:
    """Whether all one side's text lacks is what stood in a frame that cannot be read."""
    spoilt, sound = case.graph, case.legacy
    if broken.side == "legacy":
        spoilt, sound = sound, spoilt
    if broken.side == "both" or broken.at >= len(spoilt.events):
        return False
    if spoilt.events[broken.at].fault is None:
        return False
    texts = (spoilt.text, sound.text), (spoilt.reasoning, sound.reasoning)
    return all(
        whole.startswith(lacking[:come]) and whole.endswith(lacking[come:])
        for come, (lacking, whole) in zip(spoilt.reached[broken.at], texts, strict=True)
    )


def _broke_off(case: Case) -> bool:
    legacy, graph = case.legacy.text, case.graph.text
    if case.pair.control.outcome == case.pair.candidate.outcome:
        return legacy.startswith(graph) or graph.startswith(legacy)
    if case.pair.control.outcome == COMPLETED:
        return legacy.startswith(graph)
    return graph.startswith(legacy)


def _why_effect(case: Case, finding: EffectFinding) -> str | None:
    """A run that ended early asks less; a changed reply is stored as it was changed."""
    ended = case.outcome and (case.outcome[0].after is None or _unanswered(case))
    if ended and isinstance(finding, _LACKING) and _lacks(case, finding):
        return case.outcome[0].after or _first(case.outcome)
    if isinstance(finding, WriteChanged) and _is_reply(case, finding):
        return _first([f for f in case.text if isinstance(f, TextChanged)])
    return None


def _unanswered(case: Case) -> bool:
    """Whether a run ended at a call that no tape answers: what it lacks follows from that."""
    errors = case.pair.control.error, case.pair.candidate.error
    return any(error is not None and error.code == _UNANSWERED for error in errors)


_LACKING = CallSkipped | CallExtra | ToolDropped | ToolAdded


def _lacks(case: Case, finding: Finding) -> bool:
    """Whether it is the run that broke off that lacks the call."""
    skipped = isinstance(finding, CallSkipped | ToolDropped)
    run = case.pair.candidate if skipped else case.pair.control
    return run.outcome != COMPLETED


def _is_reply(case: Case, finding: WriteChanged) -> bool:
    return (finding.legacy, finding.graph) == (case.legacy.text, case.graph.text)
