"""Captures: every segment of a place compared; one segment is one pure piece of work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from compare.comparison import Comparer
from compare.damage import Damage
from compare.exemplars import exemplar_of
from compare.glances import whole
from compare.pairs import ONE_RUN, Pair, Unpaired, basis_of, choose, pair_of
from compare.reading import sightings
from compare.rules import NO_RULES, Rules, Ruling
from compare.segments import find_segments, read_lines
from compare.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from compare.glances import Texts
    from compare.layers.frames import Chunking
    from compare.reading import Exchange, Sighting
    from compare.segments import Line
    from contract.flow import FlowSpec
    from contract.records import RunRecord


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of captures: the flows that are known, and what counts as a difference."""

    flows: Mapping[str, FlowSpec]
    chunking: Chunking = "ignore"
    rules: Rules = NO_RULES


def compare_captures(
    place: str, question: Question, on_bytes: Callable[[int], None] | None = None
) -> Tally:
    """Compare all captures at a path or URL, one segment after the other, with flat memory.

    `on_bytes` is told of every piece read. Raises `CapturesUnreadable`.
    """
    total = Tally()
    for segment in find_segments(place):
        lines = read_lines(segment, on_bytes)
        total.merge(compare_segment(lines, segment.url, question))
    return total


def compare_segment(lines: Iterable[Line | Damage], place: str, question: Question) -> Tally:
    """Compare the exchanges of one segment; depends on nothing but its arguments."""
    work = _Work(question)
    for read in sightings(lines, place):
        if isinstance(read, Damage):
            work.tally.damaged(read)
        else:
            work.exchange(read)
    return work.done()


class _Work:
    """Comparing under way: a tally, and one comparer per flow."""

    def __init__(self, question: Question) -> None:
        self.tally = Tally()
        self._comparers = {
            name: Comparer(spec, question.chunking, _ruling(question, spec))
            for name, spec in question.flows.items()
        }

    def exchange(self, sighting: Sighting) -> None:
        """Take in one exchange."""
        tally = self.tally
        first = sighting.runs[0].glance
        tally.exchanges += 1
        tally.seen(first.began)
        comparer = self._comparers.get(first.flow)
        if comparer is None:
            tally.not_comparable[f"unknown flow {first.flow!r}"] += 1
            return
        comparer.reader.begin()
        chosen = self._chosen(sighting, comparer)
        if isinstance(chosen, Unpaired):
            beside = sighting.beside_damage and chosen.reason == ONE_RUN
            tally.not_comparable[f"{ONE_RUN}, beside damage" if beside else chosen.reason] += 1
        elif isinstance(chosen, Pair):
            self._pair(chosen, comparer)
        else:
            tally.equal += 1

    def _chosen(self, sighting: Sighting, comparer: Comparer) -> Pair | Unpaired | None:
        """Choose the pair of an exchange; None when a glance shows that its runs are equal."""
        try:
            self._times(sighting, comparer)
            chosen = choose(tuple(seen.glance for seen in sighting.runs))
            if isinstance(chosen, Unpaired):
                return chosen
            if comparer.equal_at_a_glance(*chosen):
                self.tally.paired(basis_of(*chosen))
                return None
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # a frame that is no text: reading the lines whole says which
        return pair_of(self._whole(sighting))

    def _whole(self, sighting: Sighting) -> Exchange:
        texts: Texts = {}
        runs: list[RunRecord] = []
        for seen in sighting.runs:
            run = whole(seen, texts)
            if isinstance(run, Damage):
                self.tally.damaged(run)
            else:
                runs.append(run)
        return tuple(runs)

    def _times(self, sighting: Sighting, comparer: Comparer) -> None:
        for seen in sighting.runs:
            run = seen.glance
            times = comparer.skimmer.times(run.frames)
            if times is not None:
                self.tally.timed(run, times)

    def _pair(self, pair: Pair, comparer: Comparer) -> None:
        tally = self.tally
        tally.paired(pair.basis)
        ruled = comparer.ruled
        findings = comparer.compare(pair)
        if not findings:
            tally.equal += 1
            tally.equal_by_rules += ruled < comparer.ruled
            return
        tally.different += 1
        tally.clusters.add(
            pair.flow,
            pair.began,
            findings,
            lambda: exemplar_of(pair, findings, comparer.reader, comparer.ruling),
        )

    def done(self) -> Tally:
        """Give the tally, with how often each rule hit."""
        for comparer in self._comparers.values():
            if comparer.ruling is not None:
                self.tally.rule_hits += comparer.ruling.hits
        return self.tally


def _ruling(question: Question, spec: FlowSpec) -> Ruling | None:
    return None if question.rules == NO_RULES else Ruling(question.rules, spec.name, spec)
