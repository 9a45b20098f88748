"""Comparison: two runs of one exchange, layer by layer, outside in."""

from __future__ import annotations

from collections import Counter

import msgspec

from compare.causes import COMPLETED, Case, noisy_effects, own_answers, settle
from compare.findings import Finding, GrammarBroken
from compare.input.calls import Call, calls_of, one_tape, same_calls
from compare.input.captures import Glance, sent_alike
from compare.input.pairing import Pair
from compare.layers.effects import effect_findings
from compare.layers.frames import Chunking, frame_findings, script_of
from compare.layers.grammar import Sound, Violation, grammar_findings, violation_of
from compare.layers.model_calls import MODEL
from compare.layers.outcome import outcome_findings
from compare.layers.text import text_findings
from compare.rules import NO_RULES, Rules, Ruling
from compare.streams.dialects import Spoken
from compare.streams.events import EventReader, Stream, read_stream, read_streams
from compare.streams.normal import NormalStream, TimesAstray
from compare.streams.scan import Skimmer, Times
from contract.records import RunRecord
from contract.wire.dialect import Wire

TRUNCATED = "truncated"


class Comparer:
    """Compares pairs of one wire."""

    def __init__(
        self, spec: Wire, chunking: Chunking = "ignore", ruling: Ruling | None = None
    ) -> None:
        self._spec = spec
        self._chunking: Chunking = chunking
        self._sound = Sound(spec.grammar)
        self.reader = EventReader(spec)
        self.skimmer = Skimmer(self.reader, self._sound)
        self.ruling = ruling

    @property
    def ruled(self) -> int:
        """How many pairs a rule has hit so far."""
        return 0 if self.ruling is None else self.ruling.pairs

    def sound_at_a_glance(self, control: Glance, candidate: Glance) -> bool:
        """Whether two runs surely sent the same, and kept to the grammar.

        Raises as `Skimmer.sound` does.
        """
        return (
            sent_alike(control, candidate)
            and control.outcome == COMPLETED
            and control.error is None
            and self.skimmer.sound(control.frames)
        )

    def compare(self, pair: Pair) -> tuple[Finding, ...]:
        """Find every difference; causes have `after` None. Empty: equal."""
        alike = sent_alike(pair.control, pair.candidate)
        sound = alike and self._sound_as_sent(pair.control)
        if alike and same_calls(pair.control, pair.candidate):
            return () if sound else self._both_wrong(pair)
        if sound and self.ruling is None:
            return self.compare_calls(pair)
        calls = calls_of(pair.control, pair.tape), calls_of(pair.candidate, pair.tape)
        legacy, graph = read_streams(self.reader, pair.control.frames, pair.candidate.frames)
        grammar = self._grammar(pair, legacy, graph)
        if self.ruling is not None:
            legacy, graph, calls, _ = self.ruling.apply(legacy, graph, calls)
        case = Case(pair, legacy, graph, same_tape=_same_answers(pair, *calls), calls=calls)
        case.outcome = outcome_findings(pair)
        case.grammar = grammar
        self._streams(case)
        case.effects = effect_findings(pair, *calls)
        return settle(case)

    @staticmethod
    def compare_calls(pair: Pair) -> tuple[Finding, ...]:
        """Find every difference of runs that sent the same, soundly, where there are no rules."""
        calls = calls_of(pair.control, pair.tape), calls_of(pair.candidate, pair.tape)
        found = effect_findings(pair, *calls)
        return tuple(noisy_effects(pair, calls, found) if own_answers(pair) else found)

    def _both_wrong(self, pair: Pair) -> tuple[Finding, ...]:
        """Equal runs can be equally wrong: the grammar still holds."""
        stream = read_stream(self.reader, pair.control.frames)
        return tuple(self._grammar(pair, stream, stream))

    def _sound_as_sent(self, run: RunRecord) -> bool:
        """Whether a run surely kept its grammar, told from its events before they are a stream."""
        if run.outcome != COMPLETED or run.error is not None:
            return False
        read = self.reader.read_all(run.frames)
        return self._sound.sound([event for event in read if event is not None])

    def _grammar(self, pair: Pair, legacy: Stream, graph: Stream) -> list[GrammarBroken]:
        control, candidate = pair.control, pair.candidate
        # A run cut short beside a whole one differs in its outcome; where both are, nothing else
        # would say so.
        cut = control.outcome == candidate.outcome == TRUNCATED
        broken = self._violation(control, legacy, cut=cut)
        if legacy.events is graph.events and _ended_alike(control, candidate):
            return grammar_findings(pair, broken, broken)
        return grammar_findings(pair, broken, self._violation(candidate, graph, cut=cut))

    def _violation(self, run: RunRecord, stream: Stream, *, cut: bool) -> Violation | None:
        """Find where a run left its grammar; most did not, and that is told fast."""
        completed = run.outcome == COMPLETED
        if completed and run.error is None and self._sound.sound(stream.events):
            return None
        return violation_of(self._spec.grammar, run, stream, ends=completed or cut)

    def _streams(self, case: Case) -> None:
        script = script_of(case.legacy, case.graph, cuts=self._cuts_count(case))
        case.frames = frame_findings(case.pair, case.legacy, case.graph, script, self._chunking)
        case.text = text_findings(
            case.pair, case.legacy, case.graph, script.matched, self._spec.grammar
        )

    def _cuts_count(self, case: Case) -> bool:
        """Say whether it matters where the text is cut.

        It does when asked for, and for cumulative texts of one model stream: the tape's stamps
        decide when they are sent, so a frame too few was dropped, not throttled.
        """
        legacy, graph = case.legacy, case.graph
        if (legacy.text, legacy.reasoning) != (graph.text, graph.reasoning):
            return False
        if self._chunking == "exact":
            return True
        return case.same_tape and all(
            event.growth == "cumulative" for event in legacy.events if event.bare
        )


def raw_equal(pair: Pair) -> bool:
    """Whether both runs sent the same bytes and made the same calls, told without parsing."""
    alike = sent_alike(pair.control, pair.candidate)
    return alike and same_calls(pair.control, pair.candidate)


def _ended_alike(control: RunRecord, candidate: RunRecord) -> bool:
    """Whether all that a grammar asks of a run beside its events is the same."""
    return (control.outcome, control.error, control.sent) == (
        candidate.outcome,
        candidate.error,
        candidate.sent,
    )


def _same_answers(pair: Pair, legacy: list[Call], graph: list[Call]) -> bool:
    """Whether one model's answers were played to both runs."""
    if not one_tape(pair.control, pair.candidate):
        return False
    heard = [{call.entry for call in calls if call.label == MODEL} for calls in (legacy, graph)]
    return bool(heard[0] & heard[1] - {None})


NAMES_REMEMBERED = 256


class Comparers:
    """Makes comparers of one dialect, and keeps them; `hits` counts what each rule has hit."""

    def __init__(self, spoken: Spoken, chunking: Chunking, rules: Rules) -> None:
        self._spoken = spoken
        self._chunking: Chunking = chunking
        self._rules = rules
        self._kept: dict[frozenset[str], Comparer] = {}
        self.hits: Counter[str] = Counter()

    def of(self, names: frozenset[str]) -> Comparer:
        """Give the comparer of streams in which these names are met."""
        known = self._kept.get(names)
        if known is not None:
            return known
        if len(self._kept) >= NAMES_REMEMBERED:
            self.forget()
        wire = self._spoken.wire(names)
        ruling = None
        if self._rules != NO_RULES:
            ruling = Ruling(self._rules, self._spoken.name, wire)
        made = self._kept[names] = Comparer(wire, self._chunking, ruling)
        return made

    def forget(self) -> None:
        """Let the comparers go; how often their rules hit is kept."""
        for comparer in self._kept.values():
            if comparer.ruling is not None:
                self.hits += comparer.ruling.hits
        self._kept.clear()

    def in_normal_form(self, pair: Pair) -> tuple[Pair, Comparer]:
        """Bring a captured pair into normal form, and give who compares it."""
        legacy, graph = self._stream(pair.control), self._stream(pair.candidate)
        control = msgspec.structs.replace(pair.control, frames=legacy.frames)
        candidate = msgspec.structs.replace(pair.candidate, frames=graph.frames)
        normal = Pair(pair.exchange, pair.flow, control, candidate, pair.tape)
        return normal, self.of(legacy.names | graph.names)

    def _stream(self, run: RunRecord) -> NormalStream:
        # The last frame of a stream may lack its blank line.
        frames = [(at, frame.encode() + b"\n\n") for at, frame in run.frames]
        normaliser = self._spoken.normaliser
        times = [at for at, frame in frames for _ in normaliser.events(frame)]
        body = b"".join(frame for _, frame in frames)
        try:
            return normaliser.stream(body, times)
        except TimesAstray:
            return normaliser.stream(body)


def times_of(run: RunRecord, reader: EventReader) -> Times | None:
    """Say when a run in normal form sent its first event, its first text and its last event."""
    frames = run.frames
    if not frames:
        return None
    text = next((at for at, frame in frames if _says(reader, frame)), None)
    return Times(frames[0][0], text, frames[-1][0])


def _says(reader: EventReader, frame: str) -> bool:
    event = reader.read(frame)
    return event is not None and bool(event.text)
