"""In which order the stacks are loaded: pairs, mirrored, drawn with a seed.

A machine warms up and tires during a session; with A B B A … neither stack always gets the
better half of it, and with a drawn beginning nobody chose who goes first.
"""

from __future__ import annotations

import random

import msgspec

PAIRS_FOR_A_STATEMENT = 5


class PlannedRun(msgspec.Struct, frozen=True):
    """One run of one stack; the runs of a pair share arrivals, messages and seed."""

    run: int
    pair: int
    stack: str
    seed: int


def interleaved(stacks: tuple[str, ...], pairs: int, seed: int) -> tuple[PlannedRun, ...]:
    """Draw the runs: every second pair mirrors the one before; one stack alone just repeats."""
    chance = random.Random(seed)
    runs: list[PlannedRun] = []
    order: list[str] = []
    for pair in range(pairs):
        order = chance.sample(stacks, len(stacks)) if pair % 2 == 0 else order[::-1]
        trace = chance.getrandbits(32)
        runs += [
            PlannedRun(len(runs) + place, pair, stack, trace) for place, stack in enumerate(order)
        ]
    return tuple(runs)
