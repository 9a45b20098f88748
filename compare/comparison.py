"""Comparison: two runs of one exchange, layer by layer, outside in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from compare.causes.differences import COMPLETED, Differences
from compare.causes.live_answers import own_answers
from compare.causes.settle import settle
from compare.findings import Finding
from compare.input.pairing import Pair, Unpaired, pair_of
from compare.layers.effects import effect_findings, frame_order_findings
from compare.layers.frames import (
    cadence_of,
    event_line_findings,
    frame_findings,
    script_of,
)
from compare.layers.grammar import grammar_findings
from compare.layers.text import outcome_findings, text_findings
from compare.rules import NO_RULES, Rules, Ruling
from compare.streams.dialects import RecordedDialect, flow_dialect
from compare.streams.events import EventReader, read_stream, read_streams
from compare.streams.soundness import Soundness
from compare.streams.two_formats import CommonDialect
from contract.calls import calls_of, in_normal_form, match_calls
from contract.equality import (
    NO_STREAM,
    TRUNCATED,
    Chunking,
    EventStream,
    Judgement,
    ReadRuns,
    Violation,
    called_alike,
    raw_equal,
    sent_alike,
    violation_of,
)
from contract.flow import FlowSpec
from contract.normalisation import Fold
from contract.records import RunRecord
from contract.wire import Wire

NAMES_REMEMBERED = 256
NO_FOLDS: frozenset[Fold] = frozenset()


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

    def judge(self, pair: Pair) -> Judgement:
        """Decide whether two runs are equal, without explaining what differs."""
        if raw_equal(pair) or self._read(pair).equal:
            return "equal"
        return "own_answers" if own_answers(pair) else "different"

    def compare(
        self, pair: Pair, restored: Callable[[Pair], Pair] | None = None
    ) -> tuple[Finding, ...]:
        """Find every difference; causes have `after` None. Empty: equal, and sound.

        Equal runs that break their grammar alike have that one finding. `restored` puts back what
        was stored apart; it is called where calls have to be read.
        """
        self.folded = NO_FOLDS
        alike = sent_alike(pair)
        sound = alike and self._ended_well(pair.control)
        sound = sound and self._soundness.frames(pair.control.frames)
        if alike and called_alike(pair):
            return () if sound else self._both_wrong(pair)
        runs = self._read(restored(pair) if restored is not None else pair, sound=sound)
        if runs.equal:
            return tuple(grammar_findings(pair, *runs.broken))
        return self._explained(pair, runs)

    def _read(self, pair: Pair, *, sound: bool = False) -> ReadRuns:
        """Read two runs under the rules; `sound`: they sent the same, and it keeps the grammar."""
        calls = calls_of(pair.control, pair.tape), calls_of(pair.candidate, pair.tape)
        if self._normalise:
            calls, self.folded = in_normal_form(*calls)
        broken: tuple[Violation | None, Violation | None] = (None, None)
        if sound and self.ruling is None:
            match = match_calls(*calls)
            legacy = graph = NO_STREAM
            if match.behind_other_frames:  # else the frames, which are alike, need not be read
                legacy = graph = read_stream(self.reader, pair.control.frames)
        else:
            legacy, graph = read_streams(self.reader, pair.control.frames, pair.candidate.frames)
            broken = self._violations(pair, legacy, graph)
            if self.ruling is not None:
                legacy, graph, calls, _ = self.ruling.apply(legacy, graph, calls)
            match = match_calls(*calls)
        return ReadRuns(
            pair=pair,
            grammar=self._spec.grammar,
            chunking=self._chunking,
            legacy=legacy,
            graph=graph,
            calls=match,
            broken=broken,
        )

    def _explained(self, pair: Pair, runs: ReadRuns) -> tuple[Finding, ...]:
        """Name what differs between runs that are not equal, and what follows from what."""
        legacy, graph, match = runs.legacy, runs.graph, runs.calls
        grammar = self._spec.grammar
        case = Differences(pair, legacy, graph, (match.legacy, match.graph), self._names)
        case.outcome = outcome_findings(pair)
        case.grammar = grammar_findings(pair, *runs.broken)
        if not runs.one_stream:
            case.same_tape = runs.same_tape
            script = script_of(legacy, graph, cuts=runs.cuts_count)
            cadence = cadence_of(pair, legacy, graph, script) if runs.cadence_counts else None
            if cadence is not None:
                script = script_of(legacy, graph, cuts=False)
                case.frames.append(cadence)
            case.frames += frame_findings(pair, legacy, graph, script)
            case.frames += event_line_findings(pair, legacy, graph)
            case.text = text_findings(pair, legacy, graph, script.matched, grammar)
        case.effects = effect_findings(pair, match)
        case.effects += frame_order_findings(pair, match, (legacy, graph), grammar)
        return settle(case)

    @staticmethod
    def _ended_well(run: RunRecord) -> bool:
        return run.outcome == COMPLETED and run.error is None

    def _both_wrong(self, pair: Pair) -> tuple[Finding, ...]:
        """Equal runs can be equally wrong: the grammar still holds."""
        stream = read_stream(self.reader, pair.control.frames)
        return tuple(grammar_findings(pair, *self._violations(pair, stream, stream)))

    def _violations(
        self, pair: Pair, legacy: EventStream, graph: EventStream
    ) -> tuple[Violation | None, Violation | None]:
        control, candidate = pair.control, pair.candidate
        # A run cut short beside a whole one differs in its outcome; where both are, nothing else
        # would say so.
        cut = control.outcome == candidate.outcome == TRUNCATED
        broken = self._violation(control, legacy, cut=cut)
        if legacy.events is graph.events and _ended_alike(control, candidate):
            return broken, broken
        return broken, self._violation(candidate, graph, cut=cut)

    def _violation(self, run: RunRecord, stream: EventStream, *, cut: bool) -> Violation | None:
        if self._ended_well(run) and self._soundness.events(stream.events):
            return None
        ends = run.outcome == COMPLETED or cut
        return violation_of(self._spec.grammar, run, stream, ends=ends)


def _ended_alike(control: RunRecord, candidate: RunRecord) -> bool:
    """Whether all that a grammar asks of a run beside its events is the same."""
    return (control.outcome, control.error, control.sent) == (
        candidate.outcome,
        candidate.error,
        candidate.sent,
    )


class DialectComparers:
    """Comparers of one dialect, for streams in normal form: one for every set of names met."""

    def __init__(
        self, dialect: RecordedDialect | CommonDialect, chunking: Chunking, rules: Rules
    ) -> None:
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


class FlowComparers:
    """The comparers of flows under the same rules.

    `built_in` holds those of the flows whose events are known, by name; `declared` flows are
    compared in the normal form of their dialect.
    """

    def __init__(
        self, flows: Mapping[str, FlowSpec], chunking: Chunking = "tape", rules: Rules = NO_RULES
    ) -> None:
        self.built_in = {
            name: Comparer(
                spec, chunking, ruling_of(rules, spec.name, spec), normalise=rules.normalise
            )
            for name, spec in flows.items()
            if not spec.declared
        }
        self.declared = {
            name: DialectComparers(flow_dialect(spec), chunking, rules)
            for name, spec in flows.items()
            if spec.declared
        }

    def of(self, pair: Pair) -> tuple[Pair, Comparer]:
        """Return what compares a pair, and the pair in the form in which that reads it."""
        comparer = self.built_in.get(pair.flow)
        return (
            self.declared[pair.flow].in_normal_form(pair) if comparer is None else (pair, comparer)
        )

    def judge(self, runs: Sequence[RunRecord]) -> Judgement:
        """Decide whether the runs of an exchange are equal; `different` where they are no pair."""
        pair = pair_of(tuple(runs))
        if isinstance(pair, Unpaired):
            return "different"
        if raw_equal(pair):
            return "equal"
        pair, comparer = self.of(pair)
        return comparer.judge(pair)

    def rule_hits(self) -> Counter[str]:
        """Count what each rule has hit."""
        hits = [*map(rule_hits, self.built_in.values())]
        return sum((*hits, *(one.rule_hits() for one in self.declared.values())), Counter())


def ruling_of(rules: Rules, name: str, wire: Wire) -> Ruling | None:
    """Return the rules of one flow, None where there are none at all."""
    return Ruling(rules, name, wire) if any(rules.numbered()) else None


def rule_hits(comparer: Comparer) -> Counter[str]:
    """Count what each rule of a comparer has hit."""
    return Counter() if comparer.ruling is None else Counter(comparer.ruling.hits)
