"""Comparing captures: every segment of a place, on one process or several.

A segment, or a stretch of a long one, is one piece of work that depends on nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import Final, Literal, NamedTuple

from compare.clusters import NAME_AT_MOST
from compare.comparison import FlowComparers
from compare.findings import shortened
from compare.input.blobs import Blobs
from compare.input.captures import CapturedExchange, Exchange, HalfExchanges, exchanges
from compare.input.damage import CapturesUnreadable, Damage
from compare.input.outcomes import ServedReader, read_scores
from compare.input.pairing import (
    CANDIDATE,
    CONTROL,
    ONE_RUN,
    Pair,
    Unpaired,
    is_untaped,
    pair_of,
)
from compare.input.segments import (
    CapturedLine,
    CaptureSegment,
    Days,
    find_segments,
    read_lines,
    stretches,
)
from compare.input.selection import EVERYTHING, Selection
from compare.noise.control import ControlChecker, control_pairs, owning_tape
from compare.noise.messages import NoiseReader
from compare.rules import NO_RULES, Rules
from compare.sharing import Workers, at_work, can_send, in_order, processes_for
from compare.streams.soundness import RunTimes, times_of
from compare.streams.two_formats import DialectNotConfigured
from compare.tally import Tally, count_pair, row_of
from contract.equality import Chunking
from contract.flow import FlowSpec
from contract.records import RunRecord, Score
from evidence.outcomes import TEXT_FRAMES, UNREAD, outcome_of

_FLOW_FOLDER: Final = re.compile(r"/flow=([^/]+)/date=[^/]+/[^/]+$")
_PASSING: Final = frozenset({"unreadable", "missing"})
"""Damage that may be gone when captures are read again."""

OnBytes = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of captures: of which flows and exchanges, and what counts as a difference.

    `scores` are what users thought, by exchange. With `served`, what clients were served is noted
    exchange by exchange, of those that it holds, whether or not the `selection` does, and so is
    each pair that is compared. `noise` asks for the messages that show it: in these captures alone,
    or `joined` with runs of legacy in other places.
    """

    flows: Mapping[str, FlowSpec]
    chunking: Chunking = "tape"
    rules: Rules = NO_RULES
    selection: Selection = EVERYTHING
    scores: Mapping[str, Score] = field(default_factory=dict)
    served: Selection | None = None
    noise: Literal["", "alone", "joined"] = ""

    @property
    def days(self) -> Days:
        """The folders of captures that may hold what is asked for."""
        days = self.selection.days
        return days if self.served is None else days | self.served.days


def compare_captures(
    place: str,
    question: Question,
    on_bytes: OnBytes | None = None,
    processes: int | None = 1,
    executor: Executor | None = None,
    known: KnownParts | None = None,
) -> Tally:
    """Compare all captures at a path or URL with flat memory, reading each part once.

    `on_bytes` gets the number of bytes read, piece by piece. `processes` None takes as many as are
    worth it; with an `executor` it says how many parts that has at once, and none is started here.
    However many, the result is the same; an exchange that is read twice counts once. Parts that
    are `known` are not read, and those that are read become known. Raises `CapturesUnreadable`,
    `WorkerLost`, `ExpressionTooSlow`.
    """
    scores, damaged = read_scores(place, question.days.first)
    question = replace(question, scores=scores)
    found = find_segments(place, days=question.days)
    segments = (one for one in found if _may_hold(one, question.selection.flow))
    parts = [part for segment in segments for part in stretches(segment)]
    unread = parts if known is None else known.begin(question, parts)
    total = Tally(selection=question.selection)
    for damage in damaged:
        total.damaged(damage)
    merger = _TallyMerger(total, question)
    with closing(_compared(unread, question, on_bytes, processes, executor)) as compared:
        for part in parts:
            tally = None if known is None else known.tally(part)
            if tally is None:
                tally = next(compared)
                if known is not None:
                    known.learn(part, tally)
            elif on_bytes is not None:
                on_bytes(part.size)
            merger.merge(part, tally)
    merger.finish()
    return total


def _may_hold(segment: CaptureSegment, flow: str) -> bool:
    """Whether exchanges of a flow may stand in a segment; the recorder has a folder for each."""
    of = _FLOW_FOLDER.search(segment.url)
    return not flow or of is None or of[1] == flow


def _compared(
    parts: Sequence[CaptureSegment],
    question: Question,
    on_bytes: OnBytes | None,
    processes: int | None,
    executor: Executor | None,
) -> Generator[Tally]:
    """Compare parts in their order, here or on several processes."""
    wanted = min(processes_for(parts) if processes is None else processes, len(parts))
    work = partial(compare_part, question=question)
    if not parts or (executor is None and (wanted <= 1 or not can_send(question))):
        for part in parts:
            yield compare_part(part, question, on_bytes)
        return
    with at_work(Workers(executor, wanted), __name__) as workers:
        for part, tally in in_order(work, parts, workers):
            if on_bytes is not None:
                on_bytes(part.size)
            yield tally


class _KnownTally(NamedTuple):
    """What a version of a part gave, and the scores that its exchanges had then."""

    version: str
    scores: Mapping[str, Score | None]
    tally: Tally


class KnownParts:
    """What the parts of captures gave when they were read last, for the same question.

    A finished segment never changes. One that was appended to, or rewritten, is another version and
    is read again, as is one whose exchanges have other scores now. What could not be read is not
    known, nor is anything where the question does not ask what was `served`. Takes about 1 KiB for
    each exchange. One comparison at a time uses it.
    """

    def __init__(self) -> None:
        self._question: Question | None = None
        self._tallies: dict[CaptureSegment, _KnownTally] = {}

    def begin(
        self, question: Question, parts: Sequence[CaptureSegment]
    ) -> Sequence[CaptureSegment]:
        """Return the parts that have to be read for a question; forgets what it does not need."""
        unscored, scores = replace(question, scores={}), question.scores
        before = self._tallies if unscored == self._question else {}
        self._question, self._tallies = unscored, {}
        for part in parts:
            known = before.get(part)
            if known is None or known.version != part.version:
                continue
            if all(scores.get(name) == score for name, score in known.scores.items()):
                self._tallies[part] = known
        return [part for part in parts if part not in self._tallies]

    def tally(self, part: CaptureSegment) -> Tally | None:
        """Return what a part gave, which is not to be changed; None of one that has to be read."""
        known = self._tallies.get(part)
        return None if known is None else known.tally

    def learn(self, part: CaptureSegment, tally: Tally) -> None:
        """Remember what a part gave."""
        question = self._question
        if question is None or question.served is None or _PASSING & tally.damage.keys():
            return
        scores = {name: one.feedback for name, one in tally.served.outcomes.items()}
        self._tallies[part] = _KnownTally(part.version, scores, tally)


class _TallyMerger:
    """Merges the tallies of parts so that an exchange that is in several of them counts once.

    Remembers about 80 bytes for every exchange, and those of which a run stands in another part.
    """

    def __init__(self, total: Tally, question: Question) -> None:
        self._total = total
        self._question = question
        self._counted: set[int] = set()
        self._halves = HalfExchanges()
        self._place = ""

    def merge(self, part: CaptureSegment, tally: Tally) -> None:
        """Take in a part; one with exchanges that are counted already is compared without them."""
        again = self._counted.intersection(tally.identities)
        if again:
            tally = compare_part(part, self._question, counted=again)
        self._add(tally)
        self._place = part.url
        self._compare([whole for half in tally.halves for whole in self._halves.join(half)])

    def finish(self) -> None:
        """Take in the exchanges whose other run is in none of the parts."""
        self._compare(list(self._halves.rest()))

    def _compare(self, found: Sequence[CapturedExchange]) -> None:
        if found:
            counted = self._counted.intersection(
                chain.from_iterable(identities_of(one.runs) for one in found)
            )
            blobs = Blobs(self._place)
            comparison = _SegmentComparison(self._question, blobs, self._place, counted)
            for exchange in found:
                comparison.exchange(exchange)
            self._add(comparison.result())

    def _add(self, tally: Tally) -> None:
        self._total.merge(tally)
        self._counted.update(tally.identities)


def compare_part(
    part: CaptureSegment,
    question: Question,
    on_bytes: OnBytes | None = None,
    *,
    counted: Iterable[int] = (),
) -> Tally:
    """Compare one segment or stretch of one; one that cannot be read is damage.

    `counted` are the identities of exchanges that were read elsewhere. Those of which a run may
    stand elsewhere are not compared, but are the `halves` of the tally.
    """
    halves = HalfExchanges()
    try:
        lines = read_lines(part, on_bytes)
        tally = compare_segment(lines, part.url, question, counted, halves)
    except CapturesUnreadable as trouble:
        tally = Tally()
        tally.damaged(Damage("unreadable", part.url, trouble.why))
    else:
        tally.halves = list(halves.rest())
    return tally


def compare_segment(
    lines: Iterable[CapturedLine | Damage],
    place: str,
    question: Question,
    counted: Iterable[int] = (),
    halves: HalfExchanges | None = None,
) -> Tally:
    """Compare the exchanges of one segment; `halves` holds those of which a run is missing.

    Depends on nothing but its arguments, and the long texts stored beside the segment at `place`.
    """
    comparison = _SegmentComparison(question, Blobs(place), place, counted)
    served = ServedReader(question.flows, question.scores, question.served or EVERYTHING)
    on_run = None if question.served is None else served.add
    for read in exchanges(lines, place, halves, on_run):
        if isinstance(read, Damage):
            comparison.tally.damaged(read)
        else:
            comparison.exchange(read)
    tally = comparison.result()
    tally.served = served.result()
    return tally


def identities_of(runs: Exchange) -> list[int]:
    """Return 64 bits that tell an exchange, as one set of runs, from others in any process.

    A lone run has those of the exchange that it may belong to, too.
    """
    known = list(dict.fromkeys((run.role, run.stack) for run in runs))
    found = [_identity(runs[0].exchange, known)]
    if len(known) == 1:
        [(role, stack)] = known
        other = CANDIDATE if stack == CONTROL else CONTROL
        served, second = (other, stack) if role == "shadow" else (stack, other)
        found.append(_identity(runs[0].exchange, [("serving", served), ("shadow", second)]))
    return found


def _identity(exchange: str, runs: Iterable[tuple[str, str]]) -> int:
    name = "\x1f".join((exchange, *(f"{role} {stack}" for role, stack in runs)))
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)


def _sent_whole(runs: Exchange) -> bool:
    """Whether the client got the frames of the first run, from the first on, and no others."""
    first = runs[0]
    skipped = first.sent or first.skipped or len(first.frames) > TEXT_FRAMES
    return first.role == "serving" and not skipped and all(r.role != "fallback" for r in runs)


class _SegmentComparison:
    def __init__(
        self, question: Question, blobs: Blobs, place: str, counted: Iterable[int]
    ) -> None:
        self.tally = Tally(selection=question.selection)
        self._flows, self._scores = question.flows, question.scores
        self._notes_pairs = question.served is not None
        self._noise = NoiseReader(question.flows, joined=question.noise == "joined")
        self._asks_noise = bool(question.noise)
        self._blobs = blobs
        self._place = place
        self._counted = set(counted)
        self._checker = ControlChecker(question.flows)
        self._comparers = FlowComparers(question.flows, question.chunking, question.rules)

    def exchange(self, exchange: CapturedExchange) -> None:
        """Take in one exchange, once."""
        if not self.tally.selection.holds(exchange.runs):
            self._leave_out(exchange.runs)
            return
        exchange = self._distinct(exchange)
        tally, first = self.tally, exchange.runs[0]
        identities = identities_of(exchange.runs)
        if not self._counted.isdisjoint(identities):
            self._duplicate(first, "exchange")
            return
        self._counted.add(identities[0])
        tally.identities.append(identities[0])
        tally.exchanges += 1
        tally.seen(first.began)
        tally.own_histories += first.own_histories
        if self._asks_noise:
            self._noise.add(owning_tape(exchange.runs))
        comparer = self._comparers.built_in.get(first.flow)
        first_text: int | None = UNREAD
        if comparer is not None:
            found = RunTimes(comparer.reader)
            for run in exchange.runs:
                times = found.of(run.frames)
                tally.timed(run, times)
                if run is first and _sent_whole(exchange.runs):
                    first_text = None if times is None else times.text
            self._check_control(exchange.runs)
        self._outcome(exchange.runs, first_text)
        if comparer is None and first.flow not in self._comparers.declared:
            tally.not_comparable.count(f"unknown flow {first.flow!r}")
            tally.missing += len(exchange.runs) > 1
            return
        pair = pair_of(exchange.runs)
        if isinstance(pair, Unpaired):
            beside = exchange.beside_damage and pair.reason == ONE_RUN
            tally.not_comparable.count(f"{ONE_RUN}, beside damage" if beside else pair.reason)
            tally.missing += pair.missing
            if pair.ledger:
                tally.unshadowed.count(pair.ledger)
            return
        if comparer is None:
            try:
                pair, comparer = self._comparers.of(pair)
            except DialectNotConfigured as trouble:
                tally.not_comparable.count(str(trouble))
                return
            for run in (pair.control, pair.candidate):
                tally.timed(run, times_of(run.frames, comparer.reader))
        tally.untaped += is_untaped(pair)
        findings = count_pair(tally, pair, comparer, self._restored)
        if self._notes_pairs:
            tally.compared.append(row_of(pair, findings))

    def _outcome(self, runs: Exchange, first_text: int | None) -> None:
        """Count what became of an exchange for its client."""
        spec, score = self._flows.get(runs[0].flow), self._scores.get(runs[0].exchange)
        if spec is None:
            return
        # Totals do not ask for its conversation.
        found = outcome_of(runs, spec, score, first_text=first_text, conversation="")
        if found is not None:
            self.tally.outcomes.add(found)

    def _leave_out(self, runs: Exchange) -> None:
        """Count an exchange that is not selected, once; a copy of it is no damage here."""
        identity = identities_of(runs)[0]
        if identity not in self._counted:
            self._counted.add(identity)
            self.tally.identities.append(identity)
            self.tally.left_out.add(runs)

    def _distinct(self, exchange: CapturedExchange) -> CapturedExchange:
        """Leave out runs that were read twice."""
        runs = exchange.runs
        if len({(run.role, run.stack) for run in runs}) == len(runs):
            return exchange
        kept: list[RunRecord] = []
        for run in runs:
            if run in kept:
                self._duplicate(run, f"{run.role} run")
            else:
                kept.append(run)
        return exchange._replace(runs=tuple(kept))

    def _duplicate(self, run: RunRecord, what: str) -> None:
        name = shortened(run.exchange, NAME_AT_MOST)
        detail = f"{what} of {name!r}" if what != "exchange" else f"exchange {name!r}"
        self.tally.damaged(Damage("duplicate", self._place, f"{detail} was read before"))

    def _check_control(self, runs: Exchange) -> None:
        """Compare legacy runs on one tape, where there are several."""
        if sum(run.stack == CONTROL for run in runs) > 1:
            restored = tuple(map(self._blobs.restored, runs))
            for pair in control_pairs(owning_tape(restored)):
                self._checker.add(pair)

    def _restored(self, pair: Pair) -> Pair:
        control, candidate = map(self._blobs.restored, (pair.control, pair.candidate))
        tape = self._blobs.restored_tape(pair.tape)
        return replace(pair, control=control, candidate=candidate, tape=tape)

    def result(self) -> Tally:
        """Return the tally, with how often each rule hit and what could not be put back."""
        self.tally.control = self._checker.check
        self.tally.noise = self._noise.tally
        for damage in self._blobs.damage:
            self.tally.damaged(damage)
        self.tally.rule_hits = self._comparers.rule_hits()
        return self.tally
