"""Causes: one cause is one finding; what follows from another finding says `after` which.

Where a shadow asked the model itself, what follows from its answers is noise. What comes before
the first of them is the pipeline's own, as ever, and so are a stream that breaks its grammar and a
run that ends otherwise by itself. A shadow with conversations of its own, in which other answers
stand than were served, drifts: there noise begins with the contents of its first question.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar, get_args

import msgspec

from compare.content import recurs
from compare.findings import (
    CadenceChanged,
    CallChanged,
    CallExtra,
    CallSkipped,
    EffectFinding,
    EventLineChanged,
    Finding,
    FrameAdded,
    FrameChanged,
    FrameDropped,
    FrameFinding,
    FrameOrder,
    GrammarBroken,
    OutcomeFinding,
    ParameterChanged,
    PromptChanged,
    ReadOrder,
    ReasoningChanged,
    RefusalAsText,
    SiteChanged,
    TextChanged,
    TextFinding,
    TextLate,
    TextShrank,
    ToolAdded,
    ToolArguments,
    ToolDropped,
    WriteChanged,
    WriteOrder,
    signature_of,
)
from compare.input.calls import EffectCall
from compare.input.pairing import Pair
from compare.layers.text import REFUSAL, went_past
from compare.streams.events import EventStream
from contract.errors import FaultCode
from contract.operations import (
    CLOCK_NOW,
    HUMAN_OPEN,
    IDS_NEW,
    LOCK_RELEASE,
    MODEL_LOOKUP,
    MODEL_STREAM,
    TOOLS_LIST,
    TOOLS_RUN,
    TURN_FIND,
    TURN_HISTORY,
    WRITES,
)
from contract.records import OwnHistory, PlayRecord, RunRecord

LIVE_ANSWER: Final = "live answer"
"""What a finding comes `after` that may be no more than another answer of the model."""

OWN_HISTORY: Final = "own history"
"""The same for a shadow in whose history other answers stand than were served."""

COMPLETED = "completed"
_WORLD: Final = frozenset({*get_args(FaultCode), "tape_miss"})
_QUESTIONS: Final = frozenset({MODEL_STREAM.label})
_HISTORIES: Final = frozenset({TURN_HISTORY.label, TURN_FIND.label})
# Codes a run's error can have: a frame behind the terminal one counts as a stream without an end.
_ENDED_BY_GRAMMAR = frozenset({"grammar", "truncated"})
_UNANSWERED = "tape_miss"
_LAST_CALLS = WRITES | {LOCK_RELEASE.label, CLOCK_NOW.label, IDS_NEW.label}
"""What a run may still call once it knows that it will fail."""
_ARGUMENTS = ".tool_call.arguments"
_TOOL_ROUNDS = (TOOLS_RUN.label, MODEL_STREAM.label)
"""Calls that are not made where no tools are offered."""
_LOOKUPS = (MODEL_LOOKUP.label, TOOLS_LIST.label)
_VALUES = (
    FrameChanged
    | TextChanged
    | ReasoningChanged
    | ToolArguments
    | WriteChanged
    | CallChanged
    | ParameterChanged
    | PromptChanged
)
KNOWN_AT_MOST = 64
_LACKING = CallSkipped | CallExtra | ToolDropped | ToolAdded

F = TypeVar("F", bound=Finding)


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


def drifts(pair: Pair) -> bool:
    """Whether a shadow read earlier answers other than those that were served."""
    history = own_history(pair)
    return history is not None and history.other > 0


@dataclass(slots=True)
class Differences:
    """Everything found between two runs, layer by layer."""

    pair: Pair
    legacy: EventStream
    graph: EventStream
    same_tape: bool
    calls: tuple[list[EffectCall], list[EffectCall]]
    outcome: list[OutcomeFinding] = field(default_factory=list)
    grammar: list[GrammarBroken] = field(default_factory=list)
    frames: list[FrameFinding] = field(default_factory=list)
    text: list[TextFinding] = field(default_factory=list)
    effects: list[EffectFinding] = field(default_factory=list)


def settle(case: Differences) -> tuple[Finding, ...]:
    """Mark what follows from what, in the order in which causes reach outwards."""
    case.outcome = [_mark(f, _why_ended(case)) for f in case.outcome]
    case.frames = [_mark(f, _why_frame(case, f)) for f in case.frames]
    case.grammar = [_mark(f, _why_grammar(case, f)) for f in case.grammar]
    case.text = [_mark(f, _why_text(case, f)) for f in case.text]
    case.effects = [_mark(f, _why_effect(case, f)) for f in case.effects]
    _mark_recurrences(case)
    if not own_answers(case.pair):
        return (*case.outcome, *case.grammar, *case.frames, *case.text, *case.effects)
    # What breaks a grammar is no answer, whatever else is found of the same text.
    grammar = [msgspec.structs.replace(broken, after=None) for broken in case.grammar]
    noise = OWN_HISTORY if drifts(case.pair) else LIVE_ANSWER
    before_question = _before_question(case)
    return (
        *(_mark(f, noise if _ended_by_world(case) else None) for f in case.outcome),
        *grammar,
        *(_mark(f, None if _own_frame(case, f) else noise) for f in case.frames),
        # A text is not taken back by the model.
        *(_mark(f, None if isinstance(f, TextShrank) else noise) for f in case.text),
        *(_mark(f, None if before_question(f) else noise) for f in case.effects),
    )


def _mark_recurrences(case: Differences) -> None:
    """Mark what shows the same change again: a value that was sent is stored and quoted, too.

    A question and the frame that shows it are one form; a setting that is looked up, or tools that
    are not listed, are no setting of the model call.
    """
    known: list[tuple[tuple[str, str], Finding, str]] = []
    forms = _first([f for f in case.frames if isinstance(f, FrameChanged) and _is_form(f.path)])
    offer = _first(
        [
            f
            for f in case.effects
            if isinstance(f, CallSkipped) and f.path.startswith(TOOLS_LIST.label)
        ]
    )
    lookup = _first([f for f in case.effects if f.path.startswith(_LOOKUPS)])

    def explained(finding: F) -> F:
        cause = forms if finding.path.startswith(HUMAN_OPEN.label) else None
        if cause is None and isinstance(finding, ParameterChanged):
            cause = lookup
        if (
            cause is None
            and isinstance(finding, ToolDropped | CallSkipped)
            and finding.path.startswith(_TOOL_ROUNDS)
        ):
            cause = offer
        if isinstance(finding, _VALUES) and finding.legacy and finding.graph:
            values = finding.legacy, finding.graph
            explaining = (
                by
                for of, source, by in known
                # What is written explains no question to the model: that comes before.
                if (isinstance(finding, WriteChanged) or not isinstance(source, WriteChanged))
                and recurs(of, *values)
            )
            cause = cause or next(explaining, None)
            if len(known) < KNOWN_AT_MOST:
                known.append((values, finding, cause or finding.after or signature_of(finding)))
        return _mark(finding, cause)

    case.text = [explained(finding) for finding in case.text]
    case.frames = [explained(finding) for finding in case.frames]
    case.effects = [explained(finding) for finding in case.effects]
    _follow_to_the_root(case)


def _is_form(path: str) -> bool:
    return path.endswith(".form")


def _follow_to_the_root(case: Differences) -> None:
    """Let what follows from a finding that is no cause itself follow from that one's cause."""
    every = (*case.outcome, *case.grammar, *case.frames, *case.text, *case.effects)
    causes = {signature_of(f) for f in every if f.after is None}
    roots = {signature_of(f): f.after for f in every if f.after is not None}

    def rooted(finding: F) -> F:
        root, seen = finding.after, set[str]()
        while root is not None and root not in causes and root not in seen:
            seen.add(root)
            root = roots.get(root)
        if root is None or root == finding.after or root == signature_of(finding):
            return finding
        changed: F = msgspec.structs.replace(finding, after=root)
        return changed

    case.frames = [rooted(finding) for finding in case.frames]
    case.text = [rooted(finding) for finding in case.text]
    case.effects = [rooted(finding) for finding in case.effects]


def _mark(finding: F, cause: str | None) -> F:
    if cause is None or finding.after is not None or cause == signature_of(finding):
        return finding
    marked: F = msgspec.structs.replace(finding, after=cause)
    return marked


def _first(findings: Sequence[Finding]) -> str | None:
    return signature_of(findings[0]) if findings else None


# What may be no more than another answer to the same question.


def _ended_by_world(case: Differences) -> bool:
    """Whether a model failed, or a call was made that is on no tape."""
    codes = {_code(case.pair.control), _code(case.pair.candidate)}
    return bool(codes & (_WORLD - {_UNANSWERED} if _went_on(case) else _WORLD))


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
    if drifts(case.pair):
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


# Which finding another follows from.


def _why_ended(case: Differences) -> str | None:
    """A run ended because it broke its grammar, or because nothing could answer its call."""
    if _went_on(case):
        return None
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


def _went_on(case: Differences) -> bool:
    """Whether one run went on where the other had ended: that is the cause of what it did then.

    The tape of a run that ended answers no further call; one that had not come so far when its
    call was missed left the way before.
    """
    runs = case.pair.control, case.pair.candidate
    for (asking, ended), (asked, answered) in ((runs[::-1], case.calls[::-1]), (runs, case.calls)):
        if went_past(ended) or _code(ended) in _ENDED_BY_GRAMMAR or not went_past(asking):
            continue
        missed = next((k for k, call in enumerate(asked) if call.how == "missed"), len(asked))
        reached = {call.entry for call in asked[:missed]}
        if all(call.entry in reached or call.label in _LAST_CALLS for call in answered):
            return True
    return False


def _code(run: RunRecord) -> str:
    return run.error.code if run.error else ""


def _why_frame(case: Differences, finding: FrameFinding) -> str | None:
    """The grammar forbids the frame, its run ended early, or its tool call is gone."""
    for broken in case.grammar:
        if isinstance(finding, CadenceChanged) and broken.shrank:
            return signature_of(broken)
        if _forbidden(finding, broken) or _lost_a_piece(case, finding, broken):
            return signature_of(broken)
    if finding.path.endswith(f".{REFUSAL}"):
        told = _first([f for f in case.text if isinstance(f, RefusalAsText)])
        if told:
            return told
    if _reaches_end(case, finding):
        broke_off = _first(case.outcome) or _cut_on_both(case)
        if broke_off:
            return broke_off
    for effect in case.effects:
        if isinstance(effect, ToolDropped | ToolAdded):
            quoted = f'"{effect.tool}"'
            if any(quoted in (value or "") for value in (finding.legacy, finding.graph)):
                return signature_of(effect)
    return None


def _forbidden(finding: FrameFinding, broken: GrammarBroken) -> bool:
    """Whether a frame one side sent too many is the one its grammar stumbled over."""
    on_legacy = broken.side == "legacy"
    if broken.side == "both" or isinstance(finding, FrameAdded if on_legacy else FrameDropped):
        return False
    start = finding.at_legacy if on_legacy else finding.at_graph
    return start <= broken.at < start + finding.count


def _lost_a_piece(case: Differences, finding: FrameFinding, broken: GrammarBroken) -> bool:
    """Whether arguments put together from many frames may lack what stood in an illegible one."""
    if not isinstance(finding, FrameChanged) or _ARGUMENTS not in f"{finding.path}{finding.detail}":
        return False
    stream, at = case.graph, finding.at_graph
    if broken.side == "legacy":
        stream, at = case.legacy, finding.at_legacy
    if not at < broken.at < len(stream.events):
        return False
    return stream.events[broken.at].fault is not None


def _cut_on_both(case: Differences) -> str | None:
    """Find the breach that neither stream came to its end, which each may have broken off alone."""
    length = len(case.graph.events)
    return _first([f for f in case.grammar if f.side == "both" and f.at >= length])


def _reaches_end(case: Differences, finding: FrameFinding) -> bool:
    """Whether nothing both runs sent comes behind the finding, but the frames that end a stream."""
    return (
        finding.at_legacy + finding.count >= len(case.legacy.events) - 1
        or finding.at_graph + finding.count >= len(case.graph.events) - 1
    )


def _why_grammar(case: Differences, broken: GrammarBroken) -> str | None:
    """A text that was changed shrank, or a frame that is missing left a hole."""
    if broken.shrank:
        changed = _first([f for f in case.text if isinstance(f, TextChanged)])
        if changed:
            return changed
    for finding in case.frames:
        if finding.after is None and _left_a_hole(case, finding, broken):
            return signature_of(finding)
    return None


def _left_a_hole(case: Differences, finding: FrameFinding, broken: GrammarBroken) -> bool:
    """Whether the grammar stumbles where the other side has a frame more."""
    if isinstance(finding, FrameDropped) and broken.side == "graph":
        return finding.at_graph <= broken.at <= _next_firm(case.graph, finding.at_graph)
    if isinstance(finding, FrameAdded) and broken.side == "legacy":
        return finding.at_legacy <= broken.at <= _next_firm(case.legacy, finding.at_legacy)
    return False


def _next_firm(stream: EventStream, at: int) -> int:
    """Index of the next event that is more than text, for those alone are always aligned."""
    rest = range(at, len(stream.events))
    return next((k for k in rest if not stream.events[k].bare), len(stream.events))


def _why_text(case: Differences, finding: TextFinding) -> str | None:
    """A run that ended early says less; a model that was asked otherwise answers otherwise."""
    broke_off = _first(case.outcome) or _cut_on_both(case)
    if broke_off and _broke_off(case):
        return broke_off
    if {case.pair.control.outcome, case.pair.candidate.outcome} > {COMPLETED} and case.outcome:
        # A run that fails or refuses may say so in the text.
        return _first(case.outcome)
    asked_alone = [f for f in case.effects if isinstance(f, CallSkipped | CallExtra)]
    answered = _first([f for f in asked_alone if f.path.startswith(MODEL_STREAM.label)])
    if answered and isinstance(finding, TextChanged | ReasoningChanged):
        return answered
    for broken in case.grammar:
        if isinstance(finding, TextChanged | ReasoningChanged) and _illegible(case, broken):
            return signature_of(broken)
    if not case.same_tape:
        asked = PromptChanged | ParameterChanged
        return _first([f for f in case.effects if isinstance(f, asked)])
    if isinstance(finding, TextLate):
        cadence = _first([f for f in case.frames if isinstance(f, CadenceChanged)])
        if cadence:
            return cadence
        return _first([f for f in case.grammar if f.shrank])
    return None


def _illegible(case: Differences, broken: GrammarBroken) -> bool:
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


def _broke_off(case: Differences) -> bool:
    legacy, graph = case.legacy.text, case.graph.text
    if case.pair.control.outcome == case.pair.candidate.outcome:
        return legacy.startswith(graph) or graph.startswith(legacy)
    if case.pair.control.outcome == COMPLETED:
        return legacy.startswith(graph)
    return graph.startswith(legacy)


def _why_effect(case: Differences, finding: EffectFinding) -> str | None:
    """A run that ended early asks less; a changed reply is stored as it was changed."""
    if case.outcome and isinstance(finding, _LACKING):
        if _went_on(case):
            return _first(case.outcome)
        # What a run lacks that ended at a call no tape answers follows from that, too.
        errors = case.pair.control.error, case.pair.candidate.error
        unanswered = any(error is not None and error.code == _UNANSWERED for error in errors)
        skipped = isinstance(finding, CallSkipped | ToolDropped)
        lacking = case.pair.candidate if skipped else case.pair.control
        ended = case.outcome[0].after is None or unanswered
        if ended and lacking.outcome != COMPLETED:
            return case.outcome[0].after or _first(case.outcome)
    if isinstance(finding, WriteOrder | ReadOrder):  # what moved past a frame moved past others
        return _first([f for f in case.effects if isinstance(f, FrameOrder)])
    texts = case.legacy.text, case.graph.text
    if isinstance(finding, WriteChanged) and (finding.legacy, finding.graph) == texts:
        return _first([f for f in case.text if isinstance(f, TextChanged)])
    return None
