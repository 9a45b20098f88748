"""A replay of captures: its parts through the pool, into a folder, with a journal."""

from __future__ import annotations

import asyncio
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path

import msgspec

from compare.input.damage import CapturesUnreadable
from compare.input.segments import CaptureSegment, find_segments
from compare.sharing import ALONE, Workers, in_order
from contract.flows import SPECS
from cutover.cluster import RUNNING, Needs
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
from cutover.replay.pool import LOG, Terms, WorkerPool, replay_there
from cutover.replay.replayer import PartJob, PartResult, Replayer, replay_part
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


class OnlyHere(ReplayMisused):
    """Workers of a cluster are to replay what only this process can."""

    def __init__(self, service: str) -> None:
        why = (
            f"[stacks] {service} is an address, and a service is replayed from here"
            if service
            else "--processes 0 runs them in this process"
        )
        super().__init__(f"--scheduler has workers of a cluster run the stacks: {why}")


def cluster_needs(plan: ReplayPlan) -> Needs:
    """Return what workers of a cluster must have as it is here; raises `ReplayMisused`."""
    sides = plan.sides
    if plan.services is not None or not plan.processes:
        raise OnlyHere(sides.requested.name if plan.services is not None else "")
    loaded = [side for side in (sides.requested, sides.other) if _fingerprint(side)]
    own = [side.where.partition(":")[0] for side in loaded if side.own]
    prompts = {flow: folder.resolve() for side in loaded for flow, folder in side.prompts.items()}
    return replace(RUNNING, code=(*RUNNING.code, *own), prompts=tuple(sorted(prompts.items())))


def replay(
    plan: ReplayPlan,
    on_progress: Callable[[ReplayProgress], None] = lambda _: None,
    workers: Workers = ALONE,
) -> Counts:
    """Replay captures, or continue an interrupted replay; returns the counts of the whole.

    With an executor, its `workers` replay, each in processes of the machine it is on; the plan's
    processes do where there is none. Whoever does, what is written is the same.

    Raises:
        BlobsAway: a worker of the executor needs a long text beside captures that it does not see.
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
    reached = _Reached(lambda counts, read: on_progress(ReplayProgress(counts, read / size)))
    with ReplayJournal(plan.out, header) as journal:
        if plan.services is not None and (plan.out / SUMMARY).exists():
            raise Finished(plan.out)
        writer = SegmentWriter(plan.out)
        writer.remove_unfinished()
        most = SERVICE_EXCHANGES if plan.services is not None else None
        reader = PartReader(plan.selection, reached.unreadable, most)
        parts = _remaining(_parts(reader, segments, journal), journal, reached)
        with (
            _replayer(plan, journal, workers) as (replay_one, there),
            closing(in_order(replay_one, parts, there)) as replayed,
        ):
            for part, result in replayed:
                writer.write(part, result.packed)
                if result.log:
                    with (plan.out / LOG).open("a", encoding="utf-8") as log:
                        log.write(result.log)
                journal.note(part, result.counts, result.turns)
                reached.done(result.counts)
        summary = msgspec.json.format(msgspec.json.encode(reached.counts), indent=2) + b"\n"
        write_whole(plan.out / SUMMARY, summary)
    return reached.counts


@contextmanager
def _replayer(
    plan: ReplayPlan, journal: ReplayJournal, workers: Workers
) -> Iterator[tuple[Callable[[Part], PartResult], Workers]]:
    """Yield what replays a part, and on which workers.

    On services, by workers of an executor, in this process, or in several.
    """
    if plan.services is not None:
        library = import_module("cutover.replay.gateway")  # the router takes a second to import
        terms = Terms(plan.sides, plan.options)
        with library.services_replayed(terms, plan.services, journal) as replay_one:
            yield replay_one, ALONE
    elif workers.executor is not None:
        packed = pickle.dumps(Terms(plan.sides.absolute(), plan.options))
        yield partial(replay_there, packed), workers
    elif plan.processes:
        terms = Terms(plan.sides, plan.options, plan.out / LOG)
        # The threads wait for their workers, which are ended first.
        with ThreadPoolExecutor(plan.processes) as threads, WorkerPool(terms) as pool:
            yield pool.replay, Workers(threads, plan.processes)
    else:
        replayer = Replayer(plan.sides, plan.options, SPECS)
        yield partial(_replay_here, replayer, plan.options.at_once), ALONE


def _replay_here(replayer: Replayer, at_once: int, part: Part) -> PartResult:
    """Replay a part in this process, for a debugger; what blocks or exits takes it along."""
    with asyncio.Runner() as runner:
        return runner.run(replay_part(PartJob(part, at_once), replayer, lambda *_: None))


def _parts(
    reader: PartReader, segments: Sequence[CaptureSegment], journal: ReplayJournal
) -> Iterator[Part]:
    yield from reader.parts(segments)
    rest = reader.rest()
    if rest.lines or journal.noted(rest):  # captures have grown: what was the rest has been joined
        yield rest


def _remaining(parts: Iterator[Part], journal: ReplayJournal, reached: _Reached) -> Iterator[Part]:
    for part in parts:
        done = journal.done(part)
        reached.read(part, done)
        if done is None:
            yield part


class _Reached:
    """Counts in the order of the captures, though parts are read before earlier ones are done."""

    def __init__(self, on_progress: Callable[[Counts, int], None]) -> None:
        self.counts = Counts()
        self._on_progress = on_progress
        self._bytes = 0
        self._waiting: deque[tuple[Counts | None, int]] = deque()

    def read(self, part: Part, done: Counts | None) -> None:
        """Take a part that was replayed earlier, or is now."""
        self._bytes = part.read
        self._waiting.append((done, part.read))
        self._advance()

    def unreadable(self, error: CapturesUnreadable) -> None:
        """Take a segment that cannot be read."""
        counts = Counts()
        counts.unreadable("unreadable", f"{error.place}: {error.why}")
        self._waiting.append((counts, self._bytes))
        self._advance()

    def done(self, counts: Counts) -> None:
        """Take the counts of the first part that was waited for."""
        _, read = self._waiting.popleft()
        self._waiting.appendleft((counts, read))
        self._advance()

    def _advance(self) -> None:
        while self._waiting and (counts := self._waiting[0][0]) is not None:
            _, read = self._waiting.popleft()
            self.counts.merge(counts)
            self._on_progress(self.counts, read)


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
