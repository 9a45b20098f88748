"""Captures: every segment of a place compared; one segment is one pure piece of work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from compare.clusters import Exemplar, exemplar_of
from compare.comparison import Comparer, Comparers, times_of
from compare.findings import Finding
from compare.input.blobs import Blobs
from compare.input.captures import (
    Exchange,
    Glance,
    Sighting,
    Twin,
    asked,
    asked_alike,
    sightings,
    whole,
)
from compare.input.damage import ILLEGIBLE, CapturesUnreadable, Damage
from compare.input.pairing import CONTROL, ONE_RUN, Pair, Unpaired, choose, pair_of
from compare.input.segments import Line, Segment, find_segments, read_lines, stretches
from compare.layers.frames import Chunking
from compare.noise.control import ControlChecker
from compare.noise.messages import control_pairs, owning_tape
from compare.processes import can_share, processes_for, share
from compare.rules import NO_RULES, Rules, Ruling
from compare.streams.dialects import spoken
from compare.tally import Tally, count_findings, count_pair
from contract.flow import FlowSpec
from contract.records import RunRecord


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of captures: the flows that are known, and what counts as a difference."""

    flows: Mapping[str, FlowSpec]
    chunking: Chunking = "ignore"
    rules: Rules = NO_RULES


def compare_captures(
    place: str,
    question: Question,
    on_bytes: Callable[[int], None] | None = None,
    processes: int | None = 1,
) -> Tally:
    """Compare all captures at a path or URL with flat memory, in one process or several.

    `on_bytes` is told of what is read; `processes` None takes as many as are worth it. Whatever
    their number, the result is the same. Raises `CapturesUnreadable`, `WorkerLost`, `WorkRefused`,
    `ExpressionTooSlow`.
    """
    segments = find_segments(place)
    parts = [part for segment in segments for part in stretches(segment)]
    wanted = min(processes_for(segments) if processes is None else processes, len(parts))
    total = Tally()
    if wanted > 1 and can_share(question):
        for part, tally in share(compare_part, parts, question, wanted):
            total.merge(tally)
            if on_bytes is not None:
                on_bytes(part.size)
    else:
        for part in parts:
            total.merge(compare_part(part, question, on_bytes))
    return total


def compare_part(
    part: Segment, question: Question, on_bytes: Callable[[int], None] | None = None
) -> Tally:
    """Compare one segment or stretch of one; one that cannot be read is damage."""
    try:
        return compare_segment(read_lines(part, on_bytes), part.url, question)
    except CapturesUnreadable as trouble:
        tally = Tally()
        tally.damaged(Damage("unreadable", part.url, trouble.why))
        return tally


def compare_segment(lines: Iterable[Line | Damage], place: str, question: Question) -> Tally:
    """Compare the exchanges of one segment.

    Depends on nothing but its arguments, and the long texts stored beside the segment at `place`.
    """
    work = _Work(question, Blobs(place))
    for read in sightings(lines, place):
        if isinstance(read, Damage):
            work.tally.damaged(read)
        else:
            work.exchange(read)
    return work.done()


class _Work:
    """Comparing under way: a tally, and one comparer per flow."""

    def __init__(self, question: Question, blobs: Blobs) -> None:
        self.tally = Tally()
        self._blobs = blobs
        self._checker = ControlChecker(question.flows)
        self._read: tuple[Sighting, Exchange] | None = None
        self._comparers = {
            name: Comparer(spec, question.chunking, _ruling(question, spec))
            for name, spec in question.flows.items()
        }
        self._declared = {
            name: Comparers(spoken(name, question.flows), question.chunking, question.rules)
            for name, spec in question.flows.items()
            if spec.declared
        }

    def exchange(self, sighting: Sighting) -> None:
        """Take in one exchange."""
        tally = self.tally
        first = sighting.runs[0].glance
        tally.exchanges += 1
        tally.seen(first.began)
        comparer = self._comparers.get(first.flow)
        if comparer is None:
            tally.not_comparable.count(f"unknown flow {first.flow!r}")
            return
        if first.flow in self._declared:
            self._normal(sighting, self._declared[first.flow])
            return
        comparer.reader.begin()
        self._control(sighting)
        chosen = self._chosen(sighting, comparer)
        if isinstance(chosen, Unpaired):
            self._unpaired(sighting, chosen)
        elif chosen is not None:
            count_pair(tally, chosen, comparer)

    def _unpaired(self, sighting: Sighting, why: Unpaired) -> None:
        beside = sighting.beside_damage and why.reason == ONE_RUN
        self.tally.not_comparable.count(f"{ONE_RUN}, beside damage" if beside else why.reason)

    def _normal(self, sighting: Sighting, comparers: Comparers) -> None:
        """Compare an exchange of a flow nobody has structs for, by its dialect."""
        chosen = pair_of(self._whole(sighting))
        if isinstance(chosen, Unpaired):
            self._unpaired(sighting, chosen)
            return
        pair, comparer = comparers.in_normal_form(chosen)
        comparer.reader.begin()
        for run in (pair.control, pair.candidate):
            times = times_of(run, comparer.reader)
            if times is not None:
                self.tally.timed(run, times)
        count_pair(self.tally, pair, comparer)

    def _control(self, sighting: Sighting) -> None:
        """Hold two legacy runs on one tape against each other, where there are such."""
        if sum(seen.glance.stack == CONTROL for seen in sighting.runs) > 1:
            for pair in control_pairs(owning_tape(self._whole(sighting))):
                self._checker.add(pair)

    def _chosen(self, sighting: Sighting, comparer: Comparer) -> Pair | Unpaired | None:
        """Choose the pair of an exchange; None where a glance at it was enough to count it."""
        try:
            self._times(sighting, comparer)
            chosen = choose(tuple(seen.glance for seen in sighting.runs))
            if isinstance(chosen, Unpaired):
                return chosen
            sound = comparer.sound_at_a_glance(*chosen)
        except ILLEGIBLE:
            # A frame is no text: reading the lines whole says which.
            return pair_of(self._whole(sighting))
        if sound and self._glanced(sighting, chosen, comparer):
            return None
        return pair_of(self._whole(sighting))

    def _glanced(
        self, sighting: Sighting, chosen: tuple[Glance, Glance], comparer: Comparer
    ) -> bool:
        """Count a pair of equal, sound streams by its calls alone, if they can be told apart so."""
        tally = self.tally
        if asked_alike(*chosen):
            tally.equal += 1
        elif comparer.ruling is not None:
            return False
        else:
            runs = [asked(seen) for seen in sighting.runs]
            read = tuple(self._blobs.restored(run) for run in runs if isinstance(run, RunRecord))
            pair = pair_of(read)
            if len(read) < len(runs) or isinstance(pair, Unpaired):
                return False
            findings = comparer.compare_calls(pair)
            count_findings(
                tally, pair, findings, lambda: self._drawn(sighting, pair, findings, comparer)
            )
        tally.paired(*chosen)
        return True

    def _drawn(
        self, sighting: Sighting, pair: Pair, findings: tuple[Finding, ...], comparer: Comparer
    ) -> Exemplar:
        """Draw the exemplar of a pair whose frames have not been read yet, if they can be."""
        read = pair_of(self._whole(sighting))
        return exemplar_of(read if isinstance(read, Pair) else pair, findings, comparer.reader)

    def _whole(self, sighting: Sighting) -> Exchange:
        """Read an exchange whole, once, for damage is counted as it is met."""
        if self._read is None or self._read[0] is not sighting:
            self._read = sighting, self._restored(sighting)
        return self._read[1]

    def _restored(self, sighting: Sighting) -> Exchange:
        twin: Twin | None = None
        runs: list[RunRecord] = []
        for seen in sighting.runs:
            run = whole(seen, twin)
            if isinstance(run, Damage):
                self.tally.damaged(run)
            else:
                twin = seen.glance, run
                runs.append(self._blobs.restored(run))
        return tuple(runs)

    def _times(self, sighting: Sighting, comparer: Comparer) -> None:
        for seen in sighting.runs:
            run = seen.glance
            times = comparer.skimmer.times(run.frames)
            if times is not None:
                self.tally.timed(run, times)

    def done(self) -> Tally:
        """Give the tally, with how often each rule hit and what could not be put back."""
        self.tally.control = self._checker.check
        for damage in self._blobs.damage:
            self.tally.damaged(damage)
        for comparer in self._comparers.values():
            if comparer.ruling is not None:
                self.tally.rule_hits += comparer.ruling.hits
        for comparers in self._declared.values():
            comparers.forget()
            self.tally.rule_hits += comparers.hits
        return self.tally


def _ruling(question: Question, spec: FlowSpec) -> Ruling | None:
    return None if question.rules == NO_RULES else Ruling(question.rules, spec.name, spec)
