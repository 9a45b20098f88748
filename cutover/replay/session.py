"""A replay of captures: its parts through the pool, into a folder, with a journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path

import msgspec

from compare.input.damage import CapturesUnreadable
from compare.input.segments import CaptureSegment, find_segments
from cutover.replay.journal import (
    Counts,
    Finished,
    Header,
    ReplayJournal,
    ReplayMisused,
    SegmentWriter,
)
from cutover.replay.parts import Part, PartReader, ReplaySelection
from cutover.replay.play import PlayOptions
from cutover.replay.pool import (
    NewExecutor,
    ReplayParts,
    Terms,
    WorkerPool,
    process_executor,
    replay_here,
)
from cutover.replay.services import SERVICE_EXCHANGES, ServicePlan, refuse_misuse
from cutover.replay.sides import Side, Sides, load_side
from cutover.wiring.stacks import StackNotLoaded
from effects.files import write_whole

SUMMARY = "replay.json"


class InsideItself(ReplayMisused):
    """What is written would be read as captures."""

    def __init__(self, out: Path, captures: str) -> None:
        super().__init__(
            f"{str(out)!r} lies within the captures {captures!r}: choose another place"
        )


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What is replayed, on which stacks, how, and where to; 0 processes: in this one.

    `services` is there where the requested stack is behind an address.
    """

    captures: str
    out: Path
    sides: Sides
    options: PlayOptions = field(default_factory=PlayOptions)
    selection: ReplaySelection = field(default_factory=ReplaySelection)
    processes: int = 1
    services: ServicePlan | None = None


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """The counts so far, and the share of the captures that was read for them."""

    counts: Counts
    share: float


def replay(
    plan: ReplayPlan,
    on_progress: Callable[[ReplayProgress], None] = lambda _: None,
    new_executor: NewExecutor = process_executor,
) -> Counts:
    """Replay captures, or continue an interrupted replay; returns the counts of the whole.

    `new_executor` makes the executor of each worker.

    Raises:
        CapturesUnreadable: there is nothing to read there.
        ReplayMisused: the folder to write to is not free for this replay, or a service must not
            be replayed, or cannot be.
        StackNotLoaded: the stack is not where the plan says.
        WorkersDie: no worker process could be kept alive.
    """
    segments = find_segments(plan.captures)
    _refuse_own_captures(plan)
    if plan.services is not None:
        refuse_misuse(plan.services, plan.sides.requested)
    header = _header(plan)
    size = max(1, sum(segment.size for segment in segments))
    counts = Counts()

    def unreadable(error: CapturesUnreadable) -> None:
        counts.unreadable("unreadable", f"{error.place}: {error.why}")

    def finished(part: Part, done: Counts) -> None:
        counts.merge(done)
        on_progress(ReplayProgress(counts, part.read / size))

    terms = Terms(plan.sides, plan.options, plan.out)
    with ReplayJournal(plan.out, header) as journal:
        if plan.services is not None and (plan.out / SUMMARY).exists():
            raise Finished(plan.out)
        SegmentWriter(plan.out).remove_unfinished()
        most = SERVICE_EXCHANGES if plan.services is not None else None
        reader = PartReader(plan.selection, unreadable, most)
        parts = _remaining(_parts(reader, segments, journal), journal, finished)
        with _replayer_of_parts(plan, terms, journal, new_executor) as replay_parts:
            for part, result in replay_parts(parts):
                journal.note(part, result.counts, result.turns)
                finished(part, result.counts)
        summary = msgspec.json.format(msgspec.json.encode(counts), indent=2) + b"\n"
        write_whole(plan.out / SUMMARY, summary)
    return counts


@contextmanager
def _replayer_of_parts(
    plan: ReplayPlan, terms: Terms, journal: ReplayJournal, new_executor: NewExecutor
) -> Iterator[ReplayParts]:
    """Return what replays parts: on services, in this process, or in several."""
    if plan.services is not None:
        library = import_module("cutover.replay.gateway")  # the router takes a second to import
        with library.services_replayed(terms, plan.services, journal) as replay_parts:
            yield replay_parts
    elif plan.processes:
        with WorkerPool(terms, plan.processes, new_executor) as pool:
            yield pool.replay
    else:
        yield partial(replay_here, terms)


def _parts(
    reader: PartReader, segments: Sequence[CaptureSegment], journal: ReplayJournal
) -> Iterator[Part]:
    yield from reader.parts(segments)
    rest = reader.rest()
    if rest.lines or journal.noted(rest):  # captures have grown: what was the rest has been joined
        yield rest


def _remaining(
    parts: Iterator[Part], journal: ReplayJournal, finished: Callable[[Part, Counts], None]
) -> Iterator[Part]:
    for part in parts:
        done = journal.done(part)
        if done is None:
            yield part
        else:
            finished(part, done)


def _refuse_own_captures(plan: ReplayPlan) -> None:
    place = plan.captures.removeprefix("file://")
    if "://" not in place and plan.out.resolve().is_relative_to(Path(place).resolve()):
        raise InsideItself(plan.out, plan.captures)


def _header(plan: ReplayPlan) -> Header:
    sides, selection = plan.sides, plan.selection
    return Header(
        captures=plan.captures,
        stack=sides.requested.where,
        code="" if plan.services else load_side(sides.requested).fingerprint,
        against=sides.other.where,
        against_code=_fingerprint(sides.other),
        pace=plan.options.pace,
        only=tuple(sorted(selection.only)),
        limit=selection.limit,
    )


def _fingerprint(side: Side) -> str:
    try:
        return load_side(side).fingerprint
    except StackNotLoaded:
        return ""
