"""Comparison: two runs of one exchange, layer by layer, outside in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain

import msgspec

from compare.causes.differences import COMPLETED, Differences
from compare.causes.settle import settle
from compare.findings import Finding, GrammarBroken
from compare.input.calls import EffectCall, calls_of, in_normal_form, one_tape, same_calls
from compare.input.pairing import Pair
from compare.layers.effects import effect_findings, frame_order_findings, match_calls
from compare.layers.frames import (
    Chunking,
    cadence_of,
    event_line_findings,
    frame_findings,
    script_of,
)
from compare.layers.grammar import Violation, grammar_findings, violation_of
from compare.layers.model_calls import MODEL
from compare.layers.text import outcome_findings, text_findings
from compare.rules import Rules, Ruling
from compare.streams.dialects import RecordedDialect
from compare.streams.events import EventReader, EventStream, read_stream, read_streams
from compare.streams.soundness import Soundness
from contract.model import GATEWAY_SITE
from contract.normalisation import Fold
from contract.records import RunRecord
from contract.wire import Wire

TRUNCATED = "truncated"
NAMES_REMEMBERED = 256
NO_FOLDS: frozenset[Fold] = frozenset()
NO_STREAM = EventStream((), (), (), "", "")


class Comparer:
    """Compares pairs of one wire.

    `folded` are the folds that took different things from the runs of the last pair; `normalise`
    is whether calls that passed the gateway are compared in normal form.
    """

    def __init__(
        self,
        spec: Wire,
        chunking: Chunking = "tape",
        ruling: Ruling | None = None,
        *,
        normalise: bool = True,
    ) -> None:
        self.folded = NO_FOLDS
        self._normalise = normalise
        self._spec = spec
        self._chunking: Chunking = chunking
        self.reader = EventReader(spec)
        self._soundness = Soundness(self.reader, spec.grammar)
        self.ruling = ruling
        self._names = frozenset[str]().union(*(step.names for step in spec.grammar.steps))

    @property
    def ruled(self) -> int:
        """How many pairs a rule has hit so far."""
        return 0 if self.ruling is None else self.ruling.pairs

    def compare(
        self, pair: Pair, restored: Callable[[Pair], Pair] | None = None
    ) -> tuple[Finding, ...]:
        """Find every difference; causes have `after` None. Empty: equal.

        `restored` puts back what was stored apart; it is called where calls have to be read.
        """
        self.folded = NO_FOLDS
        alike = sent_alike(pair)
        sound = alike and self._ended_well(pair.control)
        sound = sound and self._soundness.frames(pair.control.frames)
        if alike and same_calls(pair.control, pair.candidate):
            return () if sound else self._both_wrong(pair)
        pair = restored(pair) if restored is not None else pair
        calls = self._calls(pair)
        if sound and self.ruling is None:
            case = Differences(pair, NO_STREAM, NO_STREAM, calls, self._names)
            match = match_calls(*calls)
            case.effects = effect_findings(pair, match)
            if match.behind_other_frames:  # else the frames, which are alike, need not be read
                streams = (read_stream(self.reader, pair.control.frames),) * 2
                case.effects += frame_order_findings(pair, match, streams, self._spec.grammar)
            return settle(case)
        legacy, graph = read_streams(self.reader, pair.control.frames, pair.candidate.frames)
        grammar = self._grammar(pair, legacy, graph)
        if self.ruling is not None:
            legacy, graph, calls, _ = self.ruling.apply(legacy, graph, calls)
        case = Differences(pair, legacy, graph, calls, self._names)
        case.same_tape = _same_answers(pair, *calls)
        case.same_stamps = case.same_tape and not any(map(_passed_gateway, chain(*calls)))
        case.outcome = outcome_findings(pair)
        case.grammar = grammar
        script = script_of(legacy, graph, cuts=self._cuts_count(case))
        cadence = None
        if self._chunking == "tape" and case.same_stamps and not _caught_up(pair):
            cadence = cadence_of(pair, legacy, graph, script)
        if cadence is not None:
            script = script_of(legacy, graph, cuts=False)
            case.frames.append(cadence)
        case.frames += frame_findings(pair, legacy, graph, script, self._chunking)
        case.frames += event_line_findings(pair, legacy, graph)
        case.text = text_findings(pair, legacy, graph, script.matched, self._spec.grammar)
        match = match_calls(*calls)
        case.effects = effect_findings(pair, match)
        case.effects += frame_order_findings(pair, match, (legacy, graph), self._spec.grammar)
        return settle(case)

    def _calls(self, pair: Pair) -> tuple[list[EffectCall], list[EffectCall]]:
        """List the calls of both runs, those that passed the gateway in normal form."""
        calls = calls_of(pair.control, pair.tape), calls_of(pair.candidate, pair.tape)
        if self._normalise:
            calls, self.folded = in_normal_form(*calls)
        return calls

    @staticmethod
    def _ended_well(run: RunRecord) -> bool:
        return run.outcome == COMPLETED and run.error is None

    def _both_wrong(self, pair: Pair) -> tuple[Finding, ...]:
        """Equal runs can be equally wrong: the grammar still holds."""
        stream = read_stream(self.reader, pair.control.frames)
        return tuple(self._grammar(pair, stream, stream))

    def _grammar(self, pair: Pair, legacy: EventStream, graph: EventStream) -> list[GrammarBroken]:
        control, candidate = pair.control, pair.candidate
        # A run cut short beside a whole one differs in its outcome; where both are, nothing else
        # would say so.
        cut = control.outcome == candidate.outcome == TRUNCATED
        broken = self._violation(control, legacy, cut=cut)
        if legacy.events is graph.events and _ended_alike(control, candidate):
            return grammar_findings(pair, broken, broken)
        return grammar_findings(pair, broken, self._violation(candidate, graph, cut=cut))

    def _violation(self, run: RunRecord, stream: EventStream, *, cut: bool) -> Violation | None:
        if self._ended_well(run) and self._soundness.events(stream.events):
            return None
        ends = run.outcome == COMPLETED or cut
        return violation_of(self._spec.grammar, run, stream, ends=ends)

    def _cuts_count(self, case: Differences) -> bool:
        """Whether it matters where the text is cut.

        It does when asked for, and for texts of one model stream, unless that is not asked for: the
        tape's stamps decide when they are sent. Services that get it from the gateway see no stamps
        and cut by their own clocks. Of cumulative texts a frame too few was dropped, not throttled,
        in any case.
        """
        legacy, graph = case.legacy, case.graph
        if (legacy.text, legacy.reasoning) != (graph.text, graph.reasoning):
            return False
        if self._chunking == "exact":
            return True
        if not case.same_stamps:
            return False
        if self._chunking == "tape" and not _caught_up(case.pair):
            return True
        return all(event.growth == "cumulative" for event in legacy.events if event.bare)


def _caught_up(pair: Pair) -> bool:
    """Whether a run took over from another: what had been sent by then it sends at once."""
    runs = pair.control, pair.candidate
    return any(run.role == "fallback" or run.sent or run.resumes for run in runs)


def sent_alike(pair: Pair) -> bool:
    """Whether both runs sent the same bytes and ended alike."""
    old, new = pair.control, pair.candidate
    if old.outcome != new.outcome or old.error != new.error or len(old.frames) != len(new.frames):
        return False
    # Lists of texts: those that two runs share are one object, told equal at a glance.
    return [text for _, text in old.frames] == [text for _, text in new.frames]


def raw_equal(pair: Pair) -> bool:
    """Whether both runs sent the same bytes and made the same calls, told without parsing."""
    return sent_alike(pair) and same_calls(pair.control, pair.candidate)


def _ended_alike(control: RunRecord, candidate: RunRecord) -> bool:
    """Whether all that a grammar asks of a run beside its events is the same."""
    return (control.outcome, control.error, control.sent) == (
        candidate.outcome,
        candidate.error,
        candidate.sent,
    )


def _same_answers(pair: Pair, legacy: list[EffectCall], graph: list[EffectCall]) -> bool:
    """Whether one model's answers were played to both runs."""
    if not one_tape(pair.control, pair.candidate):
        return False
    heard = [{call.entry for call in calls if call.label == MODEL} for calls in (legacy, graph)]
    return bool(heard[0] & heard[1] - {None})


def _passed_gateway(call: EffectCall) -> bool:
    return call.site == GATEWAY_SITE and call.label == MODEL


class DialectComparers:
    """Comparers of one dialect, for streams in normal form: one for every set of names met."""

    def __init__(self, dialect: RecordedDialect, chunking: Chunking, rules: Rules) -> None:
        self._dialect = dialect
        self._chunking: Chunking = chunking
        self._rules = rules
        self._by_names: dict[frozenset[str], Comparer] = {}
        self._hits: Counter[str] = Counter()

    def of(self, names: frozenset[str]) -> Comparer:
        """Return the comparer of streams in which these names are met."""
        known = self._by_names.get(names)
        if known is not None:
            return known
        if len(self._by_names) >= NAMES_REMEMBERED:
            self._hits = self.rule_hits()
            self._by_names.clear()
        wire = self._dialect.wire(names)
        ruling = ruling_of(self._rules, self._dialect.name, wire)
        made = Comparer(wire, self._chunking, ruling, normalise=self._rules.normalise)
        self._by_names[names] = made
        return made

    def rule_hits(self) -> Counter[str]:
        """Count what each rule has hit."""
        return sum(map(rule_hits, self._by_names.values()), self._hits.copy())

    def in_normal_form(self, pair: Pair) -> tuple[Pair, Comparer]:
        """Bring a captured pair into normal form; returns its comparer, too."""
        legacy, graph = map(self._dialect.captured, (pair.control, pair.candidate))
        control = msgspec.structs.replace(pair.control, frames=legacy.frames)
        candidate = msgspec.structs.replace(pair.candidate, frames=graph.frames)
        normal = Pair(pair.exchange, pair.flow, control, candidate, pair.tape)
        return normal, self.of(legacy.names | graph.names)


def ruling_of(rules: Rules, name: str, wire: Wire) -> Ruling | None:
    """Return the rules of one flow, None where there are none at all."""
    return Ruling(rules, name, wire) if any(rules.numbered()) else None


def rule_hits(comparer: Comparer) -> Counter[str]:
    """Count what each rule of a comparer has hit."""
    return Counter() if comparer.ruling is None else Counter(comparer.ruling.hits)
