"""Comparing recordings: plain recorded bodies of any dialect, pair by pair.

There is no tape: all that is compared is what stood on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compare.comparison import DialectComparers
from compare.input.damage import Damage
from compare.input.pairing import STACKS, Pair
from compare.input.recordings import RecordedStream, Recordings, pairs_of
from compare.rules import NO_RULES, Rules
from compare.streams.dialects import RecordedDialect
from compare.streams.normal import NormalStream, TimesMismatch
from compare.streams.soundness import times_of
from compare.tally import Tally, count_pair
from contract.equality import Chunking
from contract.records import VERSION, RunRecord


@dataclass(frozen=True, slots=True)
class PlainQuestion:
    """What is asked of recordings: their dialect, and what counts as a difference."""

    dialect: RecordedDialect
    chunking: Chunking = "ignore"
    rules: Rules = NO_RULES


def compare_recordings(
    legacy: Recordings,
    graph: Recordings,
    question: PlainQuestion,
    on_bytes: Callable[[int], None] | None = None,
) -> Tally:
    """Compare what two places hold, pair by pair; what has no partner is counted.

    `on_bytes` gets the size of every body read. Raises `CapturesUnreadable`.
    """
    tally = Tally()
    comparers = DialectComparers(question.dialect, question.chunking, question.rules)
    for damage in (*legacy.damage, *graph.damage):
        tally.damaged(damage)
    for old, new in pairs_of(legacy, graph):
        tally.exchanges += 1
        if old is None or new is None:
            lacking = "legacy" if old is None else "graph"
            tally.not_comparable.count(f"nothing of that id on the side of {lacking}")
            continue
        recorded = legacy.read(old), graph.read(new)
        _compare(old, recorded, tally, question.dialect, comparers)
        for side in recorded:
            if on_bytes is not None and isinstance(side, RecordedStream):
                on_bytes(len(side.body))
    tally.rule_hits += comparers.rule_hits()
    return tally


def _compare(
    name: str,
    recorded: tuple[RecordedStream | Damage, RecordedStream | Damage],
    tally: Tally,
    dialect: RecordedDialect,
    comparers: DialectComparers,
) -> None:
    streams = _normal(recorded, dialect)
    for stream in streams:
        if isinstance(stream, Damage):
            tally.damaged(stream)
    sides = [
        (side, stream)
        for side, stream in zip(recorded, streams, strict=True)
        if isinstance(side, RecordedStream) and isinstance(stream, NormalStream)
    ]
    if len(sides) < len(recorded):
        tally.not_comparable.count("damaged")
        return
    control, candidate = (
        _run(dialect.name, name, stack, *side) for stack, side in zip(STACKS, sides, strict=True)
    )
    pair = Pair(name, dialect.name, control, candidate, ())
    comparer = comparers.of(sides[0][1].names | sides[1][1].names)
    tally.seen(pair.began)
    for run, (side, _) in zip((control, candidate), sides, strict=True):
        tally.timed(run, times_of(run.frames, comparer.reader) if side.times else None)
    count_pair(tally, pair, comparer)


def _normal(
    recorded: tuple[RecordedStream | Damage, RecordedStream | Damage], dialect: RecordedDialect
) -> list[NormalStream | Damage]:
    """Bring both sides into normal form; equal ones once."""
    streams: list[NormalStream | Damage] = []
    before: RecordedStream | None = None
    for side in recorded:
        if isinstance(side, Damage):
            streams.append(side)
        elif before is not None and (before.body, before.times) == (side.body, side.times):
            streams.append(streams[0])
        else:
            try:
                streams.append(dialect.normaliser.stream(side.body, times=side.times))
                before = side
            except TimesMismatch as trouble:
                streams.append(Damage("broken", side.place, str(trouble)))
    return streams


def _run(
    flow: str, name: str, stack: str, recorded: RecordedStream, stream: NormalStream
) -> RunRecord:
    """Make a run of a recorded stream; what a router would know of it is made up."""
    return RunRecord(
        v=VERSION,
        exchange=name,
        flow=flow,
        role="serving",
        stack=stack,
        assigned=stack,
        served=stack,
        began=recorded.began,
        frames=stream.frames,
        outcome=stream.outcome,
        error=stream.error,
        sent=stream.sent,
    )
