"""Arrivals: when the requests of an open loop are due, and how high its load is when.

Pure, and without statistics: generators import this.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate, count
from math import sqrt
from types import MappingProxyType
from typing import Literal, NamedTuple, assert_never

import msgspec

Shape = Literal["flat", "steps", "ramp", "spike", "soak"]


class Stretch(NamedTuple):
    """A part of a run until `until` (share of its time), on which the level changes evenly.

    Levels are shares of the peak.
    """

    until: float
    low: float
    high: float


SHAPES: Mapping[Shape, tuple[Stretch, ...]] = MappingProxyType(
    {
        "flat": (Stretch(1.0, 1.0, 1.0),),
        "steps": tuple(Stretch(step / 4, step / 4, step / 4) for step in range(1, 5)),
        "ramp": (Stretch(0.5, 0.0, 1.0), Stretch(1.0, 1.0, 1.0)),
        "spike": (Stretch(0.4, 0.1, 0.1), Stretch(0.6, 1.0, 1.0), Stretch(1.0, 0.1, 0.1)),
        "soak": (Stretch(0.05, 0.0, 1.0), Stretch(1.0, 1.0, 1.0)),
    }
)
"""Up in four steps; evenly to the peak by half time, then hold; a tenth of the peak but for the
middle fifth; the peak all the time, reached gently: for long runs."""


def level(shape: Shape, at: float) -> float:
    """Return the level at a share of the run's time, 1.0 at its end and after."""
    start = 0.0
    for stretch in SHAPES[shape]:
        if at < stretch.until:
            part = (at - start) / (stretch.until - start)
            return stretch.low + part * (stretch.high - stretch.low)
        start = stretch.until
    return SHAPES[shape][-1].high


def moments(shape: Shape, areas: Iterable[float]) -> Iterator[float]:
    """Yield the share of the run's time until which each of the ascending areas has passed.

    An area is the level summed over time: the expected number of requests over peak rate and
    length. Ends with the run.
    """
    stretches = iter(SHAPES[shape])
    start = passed = 0.0
    now = next(stretches)
    for area in areas:
        while area >= passed + (whole := (now.until - start) * (now.low + now.high) / 2):
            start, passed = now.until, passed + whole
            following = next(stretches, None)
            if following is None:
                return
            now = following
        slope = (now.high - now.low) / (now.until - start)
        left = area - passed
        # The root of low·x + slope·x²/2 = left that needs no division by the slope.
        root = now.low + sqrt(now.low**2 + 2 * slope * left)
        yield start + (2 * left / root if root else 0.0)


class Constant(msgspec.Struct, frozen=True, tag="constant"):
    """`rate` requests a second at the peak of the shape, evenly."""

    rate: float
    shape: Shape = "flat"


class Poisson(msgspec.Struct, frozen=True, tag="poisson"):
    """`rate` requests a second at the peak on average, each independent of the others."""

    rate: float
    seed: int
    shape: Shape = "flat"


class Trace(msgspec.Struct, frozen=True, tag="trace"):
    """Requests at these seconds from the start, ascending."""

    offsets: tuple[float, ...]


Arrivals = Constant | Poisson | Trace


def offsets(arrivals: Arrivals, seconds: float) -> tuple[float, ...]:
    """Seconds from the start of every request due within the first `seconds`, ascending."""
    match arrivals:
        case Trace(at):
            return tuple(moment for moment in at if moment < seconds)
        case Constant(rate, shape):
            expected: Iterable[float] = map(float, count())
        case Poisson(rate, seed, shape):
            expected = accumulate(iter(partial(random.Random(seed).expovariate, 1.0), None))
        case _:
            assert_never(arrivals)
    scale = rate * seconds
    areas = (number / scale for number in expected)
    return tuple(seconds * share for share in moments(shape, areas))


class Cancellations(msgspec.Struct, frozen=True):
    """Clients that leave: a `share` of them, after a time even between 0 and `within` seconds."""

    share: float = 0.0
    within: float = 5.0

    def after(self, seed: int, number: int) -> float | None:
        """Return when the client of a request leaves, seconds after sending; None if it stays.

        Drawn from the number alone: both stacks, and any number of workers, lose the same clients.
        """
        if not self.share:
            return None
        chance = random.Random(f"{seed} {number}")
        return chance.uniform(0.0, self.within) if chance.random() < self.share else None
