"""Comparison: two runs of one exchange, layer by layer, outside in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compare.answers import noisy_effects, own_answers
from compare.calls import Call, calls_of, one_tape, same_calls
from compare.causes import COMPLETED, Case, settle
from compare.echoes import sent_alike
from compare.events import EventReader, Stream, read_stream, read_streams
from compare.layers.effects import effect_findings
from compare.layers.frames import Chunking, frame_findings, script_of
from compare.layers.grammar import Sound, Violation, grammar_findings, violation_of
from compare.layers.model_calls import MODEL
from compare.layers.outcome import outcome_findings
from compare.layers.text import text_findings
from compare.skimming import Skimmer

if TYPE_CHECKING:
    from compare.findings import Finding, GrammarBroken
    from compare.glances import Glance
    from compare.pairs import Pair
    from compare.rules import Ruling
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
