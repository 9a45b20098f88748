"""What captured exchanges were for their clients: served runs alone, one exchange after the other.

Outcomes, feedback, and what the candidate wrote to stores while clients were served.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from compare.input.captures import damage_of, head_of
from compare.input.damage import ILLEGIBLE, CapturesUnreadable, Damage
from compare.input.pairing import CANDIDATE
from compare.input.segments import (
    CapturedLine,
    CaptureSegment,
    Days,
    find_segments,
    read_lines,
)
from compare.input.selection import EVERYTHING, Selection
from contract.flow import FlowSpec
from contract.operations import LOCK_ACQUIRE, OPERATIONS
from contract.records import (
    EntryRecord,
    FeedbackRecord,
    RunRecord,
    Score,
    decode_run,
)
from evidence.decision import NAMED, LastingWrites
from evidence.outcomes import ExchangeOutcome, is_in_doubt, outcome_of, what_of

_OTHERS: Final = frozenset({"shadow", "replay"})
"""Roles of runs that no client was served by."""
_LASTING: Final = {
    key: row
    for key, row in OPERATIONS.items()
    if row.order == "lasting" and row.port != LOCK_ACQUIRE.port  # a lock is released, or runs out
}

OnBytes = Callable[[int], None]

_feedback = msgspec.json.Decoder(FeedbackRecord).decode


@dataclass(slots=True)
class ServedTally:
    """What clients were served in one part of the captures, or in several.

    `outcomes` are by exchange, each once, in the order in which they were read. `writes` counts
    what the candidate wrote that lasts, by store and kind; `writers` are the first exchanges of
    each, `doubts` how many may have happened or not.
    """

    outcomes: dict[str, ExchangeOutcome] = field(default_factory=dict)
    writes: Counter[tuple[str, str]] = field(default_factory=Counter)
    writers: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    doubts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def merge(self, other: ServedTally) -> None:
        """Take in what was served in a later part."""
        for exchange, outcome in other.outcomes.items():
            self.outcomes.setdefault(exchange, outcome)
        for key, count in other.writes.items():
            self.writes[key] += count
            for exchange in other.writers[key]:
                self._name(key, exchange)
        self.doubts.update(other.doubts)

    def wrote(self, store: str, what: str, exchange: str, *, in_doubt: bool = False) -> None:
        """Count a write."""
        self.writes[store, what] += 1
        self.doubts[store, what] += in_doubt
        self._name((store, what), exchange)

    def lasting(self) -> list[LastingWrites]:
        """List the writes, the most first."""
        return [
            LastingWrites(
                store=store,
                what=what,
                count=n,
                in_doubt=self.doubts[store, what],
                exchanges=(*self.writers[store, what],),
            )
            for (store, what), n in self.writes.most_common()
        ]

    def _name(self, key: tuple[str, str], exchange: str) -> None:
        named = self.writers.setdefault(key, [])
        if len(named) < NAMED and exchange not in named:
            named.append(exchange)


class _Neighbours:
    """Groups the served runs of an exchange, which stand side by side but for shadows."""

    def __init__(self) -> None:
        self._runs: list[RunRecord] = []

    def add(self, run: RunRecord) -> list[RunRecord]:
        """Take in a served run; returns those of the exchange before it once that is whole."""
        if self._runs and self._runs[0].exchange != run.exchange:
            return self.take(run)
        self._runs.append(run)
        return []

    def take(self, *following: RunRecord) -> list[RunRecord]:
        """Return the runs of the last exchange."""
        runs, self._runs = self._runs, [*following]
        return runs


class ServedReader:
    """Notes what clients were served while the runs of captures pass by.

    Outcomes are of the exchanges that the selection holds, writes of all of these flows. Those of
    a service behind an address that it did not make through cutover are unknown.
    """

    def __init__(
        self, flows: Mapping[str, FlowSpec], scores: Mapping[str, Score], selection: Selection
    ) -> None:
        self._tally = ServedTally()
        self._flows, self._scores, self._selection = flows, scores, selection
        self._neighbours = _Neighbours()

    def add(self, run: RunRecord) -> None:
        """Take in a run of any role, in the order in which they were written."""
        if run.role not in _OTHERS and (runs := self._neighbours.add(run)):
            self._note(runs)

    def result(self) -> ServedTally:
        """Return what was served; no run follows."""
        if runs := self._neighbours.take():
            self._note(runs)
        return self._tally

    def _note(self, runs: Sequence[RunRecord]) -> None:
        found = _outcome(runs, self._flows, self._scores, self._selection)
        if found is not None:
            self._tally.outcomes.setdefault(found.exchange, found)
        if any(run.stack == CANDIDATE for run in runs):
            self._note_writes(runs)

    def _note_writes(self, runs: Sequence[RunRecord]) -> None:
        entries: dict[int, EntryRecord] = {}
        for run in runs:
            entries |= {entry.seq: entry for entry in run.tape or ()}
            if run.stack != CANDIDATE or run.flow not in self._flows:
                continue
            for play in run.plays:
                row = _LASTING.get((play.port, play.op))
                if row is None or play.how != "live":
                    continue
                entry = None if play.entry is None else entries.get(play.entry)
                what = what_of(row, play.site, play.args if entry is None else entry.args)
                doubt = entry is not None and is_in_doubt(entry)
                self._tally.wrote(play.port, what, run.exchange, in_doubt=doubt)


def read_outcomes(
    place: str,
    flows: Mapping[str, FlowSpec],
    selection: Selection = EVERYTHING,
    on_bytes: OnBytes | None = None,
) -> Iterator[ExchangeOutcome | Damage]:
    """Yield what became of each exchange of these flows in the captures at a path or URL.

    Each once, however often it is read. Remembers about 60 bytes for every exchange, and every
    score; `on_bytes` gets the number of bytes read, piece by piece. Raises `CapturesUnreadable`.
    """
    days = selection.days
    scores, damaged = read_scores(place, days.first)
    yield from damaged
    known: set[int] = set()
    for segment in find_segments(place, days=days):
        for runs in _served(segment, on_bytes):
            if isinstance(runs, Damage):
                yield runs
                continue
            found = _outcome(runs, flows, scores, selection)
            if found is None:
                continue
            if (identity := hash(found.exchange)) in known:
                detail = f"exchange {found.exchange!r} was read before"
                yield Damage("duplicate", segment.url, detail)
                continue
            known.add(identity)
            yield found


def _outcome(
    runs: Sequence[RunRecord],
    flows: Mapping[str, FlowSpec],
    scores: Mapping[str, Score],
    selection: Selection,
) -> ExchangeOutcome | None:
    """Return the outcome of an exchange; None of other flows, and of what is not selected."""
    spec = flows.get(runs[0].flow)
    if spec is None or not selection.holds(tuple(runs)):
        return None
    return outcome_of(runs, spec, scores.get(runs[0].exchange))


def read_scores(place: str, first_day: str = "") -> tuple[dict[str, Score], list[Damage]]:
    """Return the last score of each exchange with feedback, and what of it cannot be read.

    Of the feedback beside captures, which is no older than its exchange: that of days before the
    first may be left out. Raises `CapturesUnreadable`.
    """
    found: list[FeedbackRecord] = []
    damaged: list[Damage] = []
    for segment in find_segments(place, feedback=True, days=Days(first=first_day)):
        for line in _lines(segment, None):
            if isinstance(line, Damage):
                damaged.append(Damage("feedback", line.place, line.detail))
                continue
            try:
                found.append(_feedback(line.data))
            except ILLEGIBLE as trouble:
                damaged.append(Damage("feedback", segment.url, f"{line.place}: {trouble}"))
    return {one.exchange: one.score for one in sorted(found, key=lambda one: one.at)}, damaged


def _served(
    segment: CaptureSegment, on_bytes: OnBytes | None
) -> Iterator[list[RunRecord] | Damage]:
    """Yield the served runs of each exchange of a segment."""
    neighbours = _Neighbours()
    for line in _lines(segment, on_bytes):
        if isinstance(line, Damage):
            yield line
            continue
        if head_of(line.data).role in _OTHERS:
            continue
        try:
            run = decode_run(line.data)
        except ILLEGIBLE as trouble:
            yield damage_of(line, segment.url, f"{line.place}: {trouble}")
            continue
        if runs := neighbours.add(run):
            yield runs
    if runs := neighbours.take():
        yield runs


def _lines(segment: CaptureSegment, on_bytes: OnBytes | None) -> Iterator[CapturedLine | Damage]:
    """Read a segment; one that cannot be read is damage."""
    try:
        yield from read_lines(segment, on_bytes)
    except CapturesUnreadable as trouble:
        yield Damage("unreadable", segment.url, trouble.why)
