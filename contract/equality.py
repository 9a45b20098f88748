"""Equality: whether two runs of one exchange are the same to clients and to the world.

The ledger of a serving router and `cutover diff` decide by it; comparing only explains what it
calls different (docs/decisions/0051). Equal bytes and calls are answered first, without reading
anything; all else is compared as it was read, under the rules in force. Waivers are no part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from contract.calls import CallMatch, EffectCall, one_tape, same_calls
from contract.errors import GrammarViolated
from contract.external import STATE_SITE
from contract.grammar import Grammar, GrammarCheck
from contract.operations import MODEL_STREAM
from contract.records import EntryRecord, RunRecord
from contract.wire.dialect import Growth

Judgement = Literal["equal", "different", "own_answers"]
"""What is said of two runs; `own_answers`: they differ, and a shadow asked the model itself."""

Judge = Callable[[Sequence[RunRecord]], Judgement]
"""Judges the runs of one exchange, with the rules in force."""

Chunking = Literal["tape", "ignore", "exact"]
"""Where a text is cut counts on one `tape`, nowhere (`ignore`), or everywhere (`exact`)."""

MESSAGE = "message"
"""The type of an event without an `event:` line, as clients dispatch it."""

TEXT, REASONING = 0, 1
TRUNCATED = "truncated"


class RunPair(Protocol):
    """Two runs of one exchange; `tape` is what they played."""

    @property
    def control(self) -> RunRecord:
        """The run of legacy."""
        ...

    @property
    def candidate(self) -> RunRecord:
        """The run of graph."""
        ...

    @property
    def tape(self) -> tuple[EntryRecord, ...]:
        """The calls that were recorded."""
        ...


class PayloadFault(NamedTuple):
    """What is wrong with a payload: at which path below it ("" the whole), and why."""

    path: str
    why: str


class StreamEvent(msgspec.Struct, frozen=True):
    """One event of a stream.

    `data` is its payload as sent, `shape` the payload without name and texts, its keys in order;
    `bare` events carry nothing but text and may repeat: where their text is cut does not matter.
    `fault` is what is wrong with the payload. `types` are those that the `event:` lines of its
    frames say, where they count and are others than `message`.
    """

    name: str
    data: str
    shape: bytes
    text: str | None = None
    reasoning: str | None = None
    bare: bool = False
    growth: Growth | None = None
    fault: PayloadFault | None = None
    types: frozenset[str] = frozenset()


class EventStream(msgspec.Struct, frozen=True):
    """What one run sent.

    `at` in microseconds since the exchange began; `reached` is the length of text and of
    reasoning after each event; `shrank` the first event whose cumulative text took back.
    """

    at: tuple[int, ...]
    events: tuple[StreamEvent, ...]
    reached: tuple[tuple[int, int], ...]
    text: str
    reasoning: str
    shrank: int | None = None


NO_STREAM = EventStream((), (), (), "", "")


@dataclass(frozen=True, slots=True)
class Violation:
    """The first place where a stream leaves its grammar; `name` "" when it ends too early.

    `fault` is what is wrong with the event's payload, where that is what is wrong.
    """

    at: int
    name: str
    expected: tuple[str, ...] = ()
    shrank: bool = False
    fault: PayloadFault | None = None

    @property
    def behind_end(self) -> bool:
        """Whether the stream was whole before it: whatever follows, its end is not the last."""
        return bool(self.name) and not (self.expected or self.shrank or self.fault)

    @property
    def sentence(self) -> str:
        """What happened, for people."""
        if self.fault is not None:
            place = f" {self.fault.path}" if self.fault.path else ""
            return f"{self.name}{place}: {self.fault.why}"
        if self.shrank:
            return f"{self.name}: its text took back what had been shown"
        due = " or ".join(self.expected)
        return f"{self.name or 'the end'} where {due or 'nothing more'} was due"

    def same_as(self, other: Violation) -> bool:
        """Whether both are one breach, wherever it stands, or both lack an end."""
        early = not (self.name or other.name)
        return early or replace(self, at=0) == replace(other, at=0)


@dataclass(frozen=True, kw_only=True)
class ReadRuns:
    """Two runs as the rules in force read them: what equality looks at."""

    pair: RunPair
    grammar: Grammar
    chunking: Chunking
    legacy: EventStream
    graph: EventStream
    calls: CallMatch
    broken: tuple[Violation | None, Violation | None] = (None, None)

    @property
    def equal(self) -> bool:
        """Whether the runs ended, sent and called the same.

        A breach of the grammar that is on both sides is no difference.
        """
        pair = self.pair
        return (
            ended_otherwise(pair.control, pair.candidate) is None
            and self._broken_alike
            and (self.one_stream or self._same_streams)
            and self.calls.same
            and not unplayed(pair, self.calls)
            and moved_past_frame(pair, self.calls, (self.legacy, self.graph), self.grammar) is None
        )

    @property
    def one_stream(self) -> bool:
        """Whether both sent the very same events."""
        return self.legacy.events is self.graph.events

    @property
    def _same_streams(self) -> bool:
        return same_streams(self.legacy, self.graph, self.grammar, cuts=self.cuts_count)

    @property
    def _broken_alike(self) -> bool:
        legacy, graph = self.broken
        if legacy is None or graph is None:
            return legacy is graph
        return legacy.same_as(graph)

    @cached_property
    def same_tape(self) -> bool:
        """Whether one model's answers were played to both runs."""
        if not one_tape(self.pair.control, self.pair.candidate):
            return False
        heard = [
            {call.entry for call in calls if call.label == MODEL_STREAM.label}
            for calls in (self.calls.legacy, self.calls.graph)
        ]
        return bool(heard[0] & heard[1] - {None})

    @cached_property
    def same_stamps(self) -> bool:
        """Whether the moments at which each piece of these answers arrived were played, too.

        Services that get them from the gateway see no stamps and cut by their own clocks.
        """
        calls = (*self.calls.legacy, *self.calls.graph)
        return self.same_tape and not any(call.passed_gateway for call in calls)

    @property
    def cadence_counts(self) -> bool:
        """Whether a text of one tape that is sent in other pieces is a difference.

        The tape's stamps decide when they are sent. A run that took over from another sends at
        once what had been sent by then.
        """
        runs = self.pair.control, self.pair.candidate
        caught_up = any(run.role == "fallback" or run.sent or run.resumes for run in runs)
        return self.chunking == "tape" and not caught_up and self.same_stamps

    @cached_property
    def cuts_count(self) -> bool:
        """Whether it matters where the text is cut.

        It does when asked for, and for texts of one model stream, unless that is not asked for. Of
        cumulative texts a frame too few was dropped, not throttled, in any case; where each side
        has a cut that the other lacks, they merely moved.
        """
        legacy, graph = self.legacy, self.graph
        if (legacy.text, legacy.reasoning) != (graph.text, graph.reasoning):
            return False
        if self.chunking == "exact" or self.cadence_counts:
            return True
        if not self.same_stamps:
            return False
        if not all(event.growth == "cumulative" for event in legacy.events if event.bare):
            return False
        old, new = _cuts(legacy), _cuts(graph)
        return not (old - new and new - old)


def raw_equal(pair: RunPair) -> bool:
    """Whether both runs sent the same bytes and made the same calls, decided without parsing."""
    return sent_alike(pair) and called_alike(pair)


def sent_alike(pair: RunPair) -> bool:
    """Whether both runs sent the same bytes and ended alike."""
    old, new = pair.control, pair.candidate
    if old.outcome != new.outcome or old.error != new.error or len(old.frames) != len(new.frames):
        return False
    # Lists of texts: those that two runs share are one object, equal without a comparison.
    return [text for _, text in old.frames] == [text for _, text in new.frames]


def called_alike(pair: RunPair) -> bool:
    """Whether both runs made the same calls, and all that are on the tape, without reading them."""
    if not same_calls(pair.control, pair.candidate):
        return False
    plays = pair.control.plays
    if not plays or len(plays) == len(pair.tape):
        return True
    return {entry.seq for entry in pair.tape} <= {play.entry for play in plays}


def unplayed(pair: RunPair, calls: CallMatch) -> list[EntryRecord]:
    """List the recorded calls that neither run asked for."""
    played = {call.entry for call in (*calls.legacy, *calls.graph)}
    return [entry for entry in pair.tape if entry.seq not in played and entry.site != STATE_SITE]


OtherEnding = Literal["outcome", "code", "status", "detail"]


def ended_otherwise(control: RunRecord, candidate: RunRecord) -> OtherEnding | None:
    """Name what differs of two endings; None where nothing does.

    Of two refusals with one code, the status or the sentence; neither where a version before
    these were recorded wrote one.
    """
    if control.outcome != candidate.outcome:
        return "outcome"
    if code_of(control) != code_of(candidate):
        return "code"
    old, new = control.error, candidate.error
    if old is None or new is None or not (old.status and new.status):
        return None
    if old.status != new.status:
        return "status"
    return None if old.detail == new.detail else "detail"


def code_of(run: RunRecord) -> str:
    """Return the code of the error a run ended with, "" where it has none."""
    return run.error.code if run.error else ""


def same_streams(legacy: EventStream, graph: EventStream, grammar: Grammar, *, cuts: bool) -> bool:
    """Whether a client gets the same from two streams; with `cuts`, texts in the same pieces."""
    if (legacy.text, legacy.reasoning) != (graph.text, graph.reasoning):
        return False
    old, new = frame_keys(legacy, cuts=cuts), frame_keys(graph, cuts=cuts)
    return (
        [key for _, key in old] == [key for _, key in new]
        and all(
            legacy.reached[i] == graph.reached[j] for (i, _), (j, _) in zip(old, new, strict=True)
        )
        and renamed_text(legacy, graph) is None
        and not other_types(legacy, graph)
        and not shrank_alone(legacy, graph, grammar)
    )


def frame_keys(stream: EventStream, *, cuts: bool) -> list[tuple[int, Hashable]]:
    """Return the events that have to be on both sides, by index: those with more than text.

    With `cuts`, bare texts too, by how far the text has come.
    """
    return [
        (index, reached if event.bare else (event.name, event.shape))
        for index, (event, reached) in enumerate(zip(stream.events, stream.reached, strict=True))
        if cuts or not event.bare
    ]


def _cuts(stream: EventStream) -> set[tuple[int, int]]:
    pieces = zip(stream.events, stream.reached, strict=True)
    return {reached for event, reached in pieces if event.bare}


class _Span(NamedTuple):
    """A stretch of one text under one name, "" where events hold more than text.

    `end` is how far the text had come with it, `at` the index of its first event.
    """

    name: str
    end: int
    at: int


def renamed_text(legacy: EventStream, graph: EventStream) -> tuple[int, int] | None:
    """Find where equal texts are sent under different names, as the indices of both events.

    Only events that are nothing but text are looked at: all others are aligned by name anyway.
    """
    names = {event.name for stream in (legacy, graph) for event in stream.events if event.bare}
    if len(names) <= 1:
        return None
    for channel in (TEXT, REASONING):
        old, new = _spans(legacy, channel), _spans(graph, channel)
        i = j = 0
        while i < len(old) and j < len(new):
            before, after = old[i], new[j]
            if before.name and after.name and before.name != after.name:
                return before.at, after.at
            i += before.end <= after.end
            j += after.end <= before.end
    return None


def _spans(stream: EventStream, channel: int) -> list[_Span]:
    spans: list[_Span] = []
    come = 0
    for index, (event, reached) in enumerate(zip(stream.events, stream.reached, strict=True)):
        if reached[channel] <= come:
            continue
        come = reached[channel]
        name = event.name if event.bare else ""
        first = spans.pop().at if spans and spans[-1].name == name else index
        spans.append(_Span(name, come, first))
    return spans


_TYPED: Final = attrgetter("types")

Types = Mapping[str, int]
"""The types that `event:` lines give events of one name, each with the first event that has it."""


def other_types(legacy: EventStream, graph: EventStream) -> list[tuple[str, Types, Types]]:
    """List the names whose events come under other `event:` lines, with the types on each side."""
    if not any(map(_TYPED, chain(legacy.events, graph.events))):
        return []
    old, new = _types(legacy.events), _types(graph.events)
    return [
        (name, types, new[name])
        for name, types in old.items()
        if name in new and types.keys() != new[name].keys()
    ]


def _types(events: Iterable[StreamEvent]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for index, event in enumerate(events):
        types = found.setdefault(event.name, {})
        for name in event.types or (MESSAGE,):
            types.setdefault(name, index)
    return found


def shrank_alone(legacy: EventStream, graph: EventStream, grammar: Grammar) -> bool:
    """Whether a text took back on one side, where the grammar does not watch over it."""
    if (legacy.shrank is None) == (graph.shrank is None):
        return False
    stream = graph if legacy.shrank is None else legacy
    return stream.events[stream.shrank or 0].name not in grammar.growing


class PastFrame(NamedTuple):
    """Calls that stand on another side of a frame; `at` is where it is in legacy's stream."""

    name: str
    at: int
    moved: list[tuple[EffectCall, EffectCall]]


def moved_past_frame(
    pair: RunPair, calls: CallMatch, streams: tuple[EventStream, EventStream], grammar: Grammar
) -> PastFrame | None:
    """Find effects on another side of a frame that ends the stream, or shows a question.

    A reader of such a frame relies on what was done before it. None where no call is
    `behind_other_frames`, and where the runs ended otherwise or have comments among their frames.
    """
    twins = calls.behind_other_frames
    runs = pair.control, pair.candidate
    if not twins or runs[0].outcome != runs[1].outcome:
        return None
    if any(len(run.frames) != len(read.events) for run, read in zip(runs, streams, strict=True)):
        return None
    for name in sorted(grammar.questions | grammar.terminal):
        old_at, new_at = (
            next((k for k, event in enumerate(stream.events) if event.name == name), None)
            for stream in streams
        )
        if old_at is None or new_at is None:
            continue
        moved = [(a, b) for a, b in twins if (a.frames > old_at) != (b.frames > new_at)]
        if moved:
            return PastFrame(name, old_at, moved)
    return None


def violation_of(
    grammar: Grammar, run: RunRecord, stream: EventStream, *, ends: bool
) -> Violation | None:
    """Find where a run left its grammar; a frame that was refused as it came is on the record.

    `ends`: the stream is to be held to the grammar's end, too.
    """
    broken = _walked(grammar, run, stream, ends=ends)
    if broken is None and run.error is not None and run.error.code == "grammar":
        return Violation(len(stream.events), run.error.kind)
    return broken


def _walked(
    grammar: Grammar, run: RunRecord, stream: EventStream, *, ends: bool
) -> Violation | None:
    check = GrammarCheck(grammar)
    for index, event in enumerate(stream.events):
        if event.fault is not None:
            return Violation(index, event.name, fault=event.fault)
        if run.sent and index == run.sent:
            # Another stack has taken over here: it may begin its text anew.
            check.forget_texts()
        try:
            check.event(event.name, event.text)
        except GrammarViolated as broken:
            return Violation(index, event.name, broken.expected, stream.shrank == index)
    if ends and not check.complete:
        return Violation(len(stream.events), "", check.expected)
    return None
