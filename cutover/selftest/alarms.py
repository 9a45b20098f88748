"""False alarms: findings between runs that are equal, made independently of each other.

Both stacks answer the same request, each with a world of its own in which the model says the same,
cut into other chunks at other times. Nothing is played: no tape makes the runs equal.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from cutover.selftest.cases import case
from cutover.selftest.findings import causes
from cutover.selftest.jitter import jittered
from cutover.selftest.serving import on_virtual_time, serve

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.records import RunRecord
    from router.serving.stack import LocalStack

AT_ONCE = 50
NAMED_AT_MOST = 20


class Alarm(msgspec.Struct, frozen=True):
    """A pair of equal runs something was found in; the seed makes it again."""

    seed: int
    found: tuple[str, ...]


class Alarms(msgspec.Struct, frozen=True):
    """What equal pairs gave: how many there were, how many raised an alarm, the first of them.

    `recut` counts pairs whose streams were cut differently, `kinds` pairs by how they ended.
    """

    pairs: int
    raised: int
    recut: int
    ended: dict[str, int]
    first: tuple[Alarm, ...]

    @property
    def rate(self) -> float:
        """Share of pairs with a finding; 0 when there were none."""
        return self.raised / self.pairs if self.pairs else 0.0


def alarms(
    legacy: LocalStack, graph: LocalStack, pairs: int, done: Callable[[int], None]
) -> Alarms:
    """Compare equal pairs; `done` hears how many more have been compared."""
    raised, recut, first = 0, 0, list[Alarm]()
    ended: dict[str, int] = {}
    for start in range(0, pairs, AT_ONCE):
        seeds = range(start, min(start + AT_ONCE, pairs))
        for seed, runs in zip(seeds, on_virtual_time(_pairs(legacy, graph, seeds)), strict=True):
            found = causes(runs)
            raised += bool(found)
            recut += [text for _, text in runs[0].frames] != [text for _, text in runs[1].frames]
            ended[runs[0].outcome] = ended.get(runs[0].outcome, 0) + 1
            if found and len(first) < NAMED_AT_MOST:
                first.append(Alarm(seed, tuple(map(str, found))))
        done(len(seeds))
    return Alarms(pairs, raised, recut, ended, tuple(first))


async def _pairs(
    legacy: LocalStack, graph: LocalStack, seeds: range
) -> list[tuple[RunRecord, RunRecord]]:
    return [await equal_pair(legacy, graph, seed) for seed in seeds]


async def equal_pair(
    legacy: LocalStack, graph: LocalStack, seed: int
) -> tuple[RunRecord, RunRecord]:
    """Let both stacks answer a request on their own, the same model text cut in two ways."""
    draw, name = Random(f"jitter {seed}"), f"x-{seed:05}"
    asked = case(seed)
    control = await serve(legacy, jittered(asked, draw), name)
    return _on_one_tape(control, await serve(graph, jittered(asked, draw), name))


def _on_one_tape(first: RunRecord, second: RunRecord) -> tuple[RunRecord, RunRecord]:
    """Put the calls of both runs on the tape of the first, one behind the other.

    An exchange has one tape, whoever made its calls: a number on it means one call.
    """
    before = tuple(first.tape or ())
    behind = len(before)
    entries = [replace(entry, seq=entry.seq + behind) for entry in second.tape or ()]
    plays = tuple(
        play if play.entry is None else replace(play, entry=play.entry + behind)
        for play in second.plays
    )
    return (
        replace(first, tape=(*before, *entries)),
        replace(second, role="shadow", tape=None, plays=plays),
    )
