"""Work on one part: a function of its lines and the stacks; results merge."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from compare import Damage
from compare.input.blobs import BlobFolder
from compare.input.captures import exchanges
from contract.records import encode_run
from cutover.replay.counts import Counts
from cutover.replay.recording import Skipped
from cutover.replay.replaying import Losses, Replayed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compare.input.captures import Exchange
    from cutover.replay.parts import Part
    from cutover.replay.replaying import Began, Replayer


@dataclass(frozen=True, slots=True)
class Job:
    """A part to be done, so many exchanges at a time; `lost` are runs that are not tried again."""

    part: Part
    at_once: int = 1
    lost: Losses = field(default_factory=dict)


@dataclass(slots=True)
class Result:
    """What came of a part: its lines and counts, and whether a stack would not let go."""

    lines: list[bytes] = field(default_factory=list, repr=False)
    counts: Counts = field(default_factory=Counts)
    lingers: bool = False


async def work(job: Job, replayer: Replayer, began: Began) -> Result:
    """Replay the exchanges of a part, in their order."""
    result = Result()
    fetch = BlobFolder(job.part.segment).fetch
    for group in _groups(job, result):
        replays = (replayer.replay(one, fetch, job.lost, began) for one in group)
        for exchange, replay in zip(group, await asyncio.gather(*replays), strict=True):
            _take(exchange, replay, result)
    return result


def _groups(job: Job, result: Result) -> Iterator[Sequence[Exchange]]:
    group: list[Exchange] = []
    for read in exchanges(job.part.lines, job.part.segment):
        if isinstance(read, Damage):
            result.counts.damage(read)
            continue
        group.append(read.runs)
        if len(group) == job.at_once:
            yield group
            group = []
    if group:
        yield group


def _take(exchange: Exchange, replay: Replayed | Skipped, result: Result) -> None:
    match replay:
        case Skipped(reason):
            result.counts.skip(exchange[0].exchange, reason)
        case Replayed():
            result.lines += map(encode_run, replay.runs)
            result.counts.compare(replay.basis, replay.outcome, equal=replay.equal)
            result.lingers = result.lingers or replay.lingers
        case _:
            assert_never(replay)
