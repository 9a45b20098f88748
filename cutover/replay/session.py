"""A replay of captures: their parts through the pool, into a place, with a journal."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from compare import CapturesUnreadable, find_segments
from cutover.files import write_whole
from cutover.replay.counts import Counts
from cutover.replay.here import Here
from cutover.replay.journal import Header, Journal
from cutover.replay.outputs import Outputs
from cutover.replay.parts import Cutter, Wanted
from cutover.replay.playing import How
from cutover.replay.pool import Pool
from cutover.replay.sides import ReplayMisused, Side, Sides, loaded
from cutover.replay.worker import Terms
from cutover.wiring.stacks import StackNotLoaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from cutover.replay.parts import Part

SUMMARY = "replay.json"


class InsideItself(ReplayMisused):
    """What is written would be read as captures."""

    def __init__(self, out: Path, captures: str) -> None:
        super().__init__(
            f"{str(out)!r} lies within the captures {captures!r}: choose another place"
        )


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is to be replayed, on what, how, and where to; no processes: in this one."""

    captures: str
    out: Path
    sides: Sides
    how: How = field(default_factory=How)
    wanted: Wanted = field(default_factory=Wanted)
    processes: int = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: exchanges so far, and the share of the captures that was read for them."""

    counts: Counts
    share: float


def replay(wishes: Wishes, hear: Callable[[Progress], None] = lambda _: None) -> Counts:
    """Replay captures, or go on where it was interrupted; returns the counts of the whole.

    Raises:
        CapturesUnreadable: there is nothing to read there.
        ReplayMisused: the place to write to is not free for this replay.
        StackNotLoaded: the stack is not where it was said to be.
        WorkersDie: no worker process could be kept alive.
    """
    segments = find_segments(wishes.captures)
    _apart(wishes)
    header = _header(wishes)
    size = max(1, sum(segment.size for segment in segments))
    counts = Counts()

    def trouble(error: CapturesUnreadable) -> None:
        counts.unreadable("unreadable", f"{error.place}: {error.why}")

    parts = Cutter(wishes.wanted, trouble).parts(segments)
    with Journal(wishes.out, header) as journal:
        Outputs(wishes.out).tidy()

        def finished(part: Part, done: Counts) -> None:
            counts.merge(done)
            hear(Progress(counts, part.read / size))

        with _workers(wishes) as workers:
            for part, done in workers.run(_left(parts, journal, finished)):
                journal.note(part, done)
                finished(part, done)
        _write_summary(wishes, counts)
    return counts


def _workers(wishes: Wishes) -> AbstractContextManager[Pool | Here]:
    terms = Terms(wishes.sides, wishes.how, wishes.out)
    return Pool(terms, wishes.processes) if wishes.processes else nullcontext(Here(terms))


def _left(
    parts: Iterator[Part], journal: Journal, finished: Callable[[Part, Counts], None]
) -> Iterator[Part]:
    """Yield the parts that are still to be done."""
    for part in parts:
        done = journal.done(part)
        if done is None:
            yield part
        else:
            finished(part, done)


def _apart(wishes: Wishes) -> None:
    captures = Path(wishes.captures.removeprefix("file://")).resolve()
    if "://" in wishes.captures.removeprefix("file://"):
        return
    if wishes.out.resolve().is_relative_to(captures):
        raise InsideItself(wishes.out, wishes.captures)


def _header(wishes: Wishes) -> Header:
    sides, wanted = wishes.sides, wishes.wanted
    return Header(
        captures=wishes.captures,
        stack=sides.asked.where,
        code=loaded(sides.asked).fingerprint,
        against=sides.other.where,
        against_code=_code_if_there(sides.other),
        pace=wishes.how.pace,
        only=tuple(sorted(wanted.only)),
        limit=wanted.limit,
    )


def _code_if_there(side: Side) -> str:
    try:
        return loaded(side).fingerprint
    except StackNotLoaded:
        return ""


def _write_summary(wishes: Wishes, counts: Counts) -> None:
    written = msgspec.json.format(msgspec.json.encode(counts), indent=2) + b"\n"
    write_whole(wishes.out / SUMMARY, written)
