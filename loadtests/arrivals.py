"""Arrivals: when an open loop sends, whatever the service does. Values, drawn with a seed."""

from __future__ import annotations

import random
from typing import assert_never

import msgspec


class Constant(msgspec.Struct, frozen=True, tag="constant"):
    """`rate` requests a second, evenly."""

    rate: float


class Poisson(msgspec.Struct, frozen=True, tag="poisson"):
    """`rate` requests a second on average, each independent of the others."""

    rate: float
    seed: int


class Trace(msgspec.Struct, frozen=True, tag="trace"):
    """Recorded moments, seconds from the start; `speed` 2 plays them twice as fast."""

    offsets: tuple[float, ...]
    speed: float = 1.0


Arrivals = Constant | Poisson | Trace


def offsets(arrivals: Arrivals, seconds: float) -> tuple[float, ...]:
    """Seconds from the start of every request due within the first `seconds`, ascending."""
    match arrivals:
        case Constant(rate):
            return tuple(number / rate for number in range(int(seconds * rate)))
        case Poisson(rate, seed):
            return _poisson(rate, seconds, random.Random(seed))
        case Trace(recorded, speed):
            scaled = sorted(moment / speed for moment in recorded)
            return tuple(moment for moment in scaled if moment < seconds)
        case _:
            assert_never(arrivals)


def _poisson(rate: float, seconds: float, chance: random.Random) -> tuple[float, ...]:
    moments: list[float] = []
    moment = chance.expovariate(rate)
    while moment < seconds:
        moments.append(moment)
        moment += chance.expovariate(rate)
    return tuple(moments)
