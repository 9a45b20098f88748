"""Captures: every segment of a place compared; one segment is one pure piece of work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from compare.comparison import Comparer
from compare.damage import Damage
from compare.exemplars import exemplar_of
from compare.layers.timing import times_of
from compare.pairs import Pair, Unpaired, pair_of
from compare.reading import exchanges
from compare.rules import NO_RULES, Rules, Ruling
from compare.segments import find_segments, read_lines
from compare.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from compare.layers.frames import Chunking
    from compare.reading import Exchange
    from compare.segments import Line
    from contract.flow import FlowSpec


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
    for read in exchanges(lines, place):
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

    def exchange(self, exchange: Exchange) -> None:
        tally = self.tally
        flow = exchange[0].flow
        tally.exchanges += 1
        tally.seen(exchange[0].began)
        comparer = self._comparers.get(flow)
        if comparer is None:
            tally.not_comparable[f"unknown flow {flow!r}"] += 1
            return
        comparer.reader.begin()
        self._times(exchange, comparer)
        pair = pair_of(exchange)
        if isinstance(pair, Unpaired):
            tally.not_comparable[pair.reason] += 1
        else:
            self._pair(pair, comparer)

    def _times(self, exchange: Exchange, comparer: Comparer) -> None:
        for run in exchange:
            times = times_of(run, comparer.reader)
            if times is not None:
                self.tally.timed(run, times)

    def _pair(self, pair: Pair, comparer: Comparer) -> None:
        tally = self.tally
        tally.pairs += 1
        if pair.basis:
            tally.bases[pair.basis] += 1
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
