"""A day of a hundred million exchanges: what it needs on paper, and whether a simulation agrees.

python -m benchmarks.shadows.day EXCHANGES

The paper multiplies measured costs by rates. The simulation lets requests arrive by the second over
a day whose rate swings, with the chance of a Poisson process, and plays the bounded queue between
routers and workers through it, with a minute without workers and twenty seconds without Redis at
the busiest hour.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.rows import SEED, BenchRow, at_most, reported

DAY: Final = 86_400
STEP: Final = 0.25
"""Seconds of a step of the simulation."""
LOST: Final = 0.01
"""Share of exchanges without a shadow that the gate accepts, `[gate] losses`."""


class Costs(msgspec.Struct, frozen=True):
    """What one exchange costs, as `docs/scaling.md` says it was measured.

    Processor seconds of a router that hands its shadow over, of a worker and of the broker; bytes
    on the broker, and of both runs as stored; seconds between two objects of a worker.
    """

    router: float = 0.0043
    worker: float = 0.0069
    broker: float = 0.00043
    waiting_bytes: int = 24_000
    stored_bytes: int = 1_700
    object_seconds: float = 1.0


class Prices(msgspec.Struct, frozen=True):
    """Examples of prices in US dollars: of a core for an hour, a GB for a month, 1 000 puts."""

    core_hour: float = 0.045
    gb_month: float = 0.023
    puts: float = 0.005


@dataclass(frozen=True, slots=True)
class Plan:
    """How a day is provided for, sizes following from it.

    `peak` is the rate of the busiest moment over the mean; processes are used to `used` of their
    core there. `queue` is `[shadow] queue` of each router, `kept` days of captures.
    """

    exchanges: float
    costs: Costs = field(default_factory=Costs)
    prices: Prices = field(default_factory=Prices)
    peak: float = 2.0
    used: float = 0.7
    queue: int = 256
    kept: int = 30

    @property
    def mean(self) -> float:
        """Exchanges a second over the day."""
        return self.exchanges / DAY

    @property
    def routers(self) -> int:
        """Router processes, each on a core."""
        return math.ceil(self.mean * self.peak * self.costs.router / self.used)

    @property
    def workers(self) -> int:
        """Workers of shadows, each on a core."""
        return math.ceil(self.mean * self.peak * self.costs.worker / self.used)

    @property
    def brokers(self) -> int:
        """Redis servers, each on a core, between groups of routers and their workers."""
        return math.ceil(self.mean * self.peak * self.costs.broker / self.used)

    @property
    def stored(self) -> float:
        """Bytes of captures that are kept."""
        return self.exchanges * self.costs.stored_bytes * self.kept

    @property
    def puts(self) -> float:
        """Objects of a day."""
        return self.workers * DAY / self.costs.object_seconds

    @property
    def price(self) -> float:
        """Dollars of a day, models and stores of conversations left out."""
        cores = (self.routers + self.workers + self.brokers) * 24 * self.prices.core_hour
        return (
            cores
            + self.stored / 1e9 * self.prices.gb_month / 30
            + self.puts / 1e3 * (self.prices.puts)
        )

    def rates(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return exchanges a second at times of the day: least at midnight, most at noon."""
        swing = (self.peak - 1.0) * np.cos(2 * np.pi * seconds / DAY)
        return np.asarray(self.mean * (1.0 - swing))


@dataclass(slots=True)
class Simulated:
    """What became of a day: shares of its exchanges, and the worst of the queue."""

    arrived: int = 0
    compared: int = 0
    full: int = 0
    away: int = 0
    most_waiting: float = 0.0
    longest_lag: float = 0.0

    @property
    def dropped(self) -> float:
        """Share of exchanges without a shadow."""
        return (self.full + self.away) / self.arrived


@dataclass(frozen=True, slots=True)
class Outage:
    """From a second of the day on, for some seconds: workers stand still, or Redis is away."""

    what: str
    begins: float
    seconds: float

    def at(self, second: float) -> bool:
        """Whether it lasts."""
        return self.begins <= second < self.begins + self.seconds


NOON: Final = DAY / 2
OUTAGES: Final = (Outage("workers", NOON, 60.0), Outage("redis", NOON + 1_800, 20.0))


def simulate(plan: Plan, outages: tuple[Outage, ...], seed: int = SEED) -> Simulated:
    """Play a day; each worker needs an exponential time, of the mean that is its cost."""
    found, waiting = Simulated(), 0.0
    chance = np.random.default_rng(seed)
    room = plan.routers * plan.queue
    moments = np.arange(0.0, DAY, STEP)
    arrivals = chance.poisson(plan.rates(moments) * STEP)
    able = chance.poisson(plan.workers / plan.costs.worker * STEP, moments.size)
    for moment, came, served in zip(
        moments.tolist(), arrivals.tolist(), able.tolist(), strict=True
    ):
        down = {one.what for one in outages if one.at(moment)}
        found.arrived += came
        if "redis" in down:
            found.away += came
            continue
        done = 0.0 if "workers" in down else min(served, waiting + came)
        waiting += came - done
        found.compared += int(done)
        if waiting > room:
            found.full += int(waiting - room)
            waiting = float(room)
        found.most_waiting = max(found.most_waiting, waiting)
        found.longest_lag = max(found.longest_lag, waiting * plan.costs.worker / plan.workers)
    return found


def rows(plan: Plan) -> list[BenchRow]:
    """Put a plan and its simulation into rows."""
    calm, struck = simulate(plan, ()), simulate(plan, OUTAGES)
    how = (
        f"{plan.exchanges:,.0f} exchanges, all shadowed, {plan.mean:,.0f}/s, {plan.peak:g} times "
        f"that at noon, cores used to {plan.used:.0%} then"
    )
    outages = f"{how}; no worker for 60 s at noon, no Redis for 20 s half an hour later"
    memory = plan.routers * plan.queue * plan.costs.waiting_bytes
    return [
        reported("day.routers", plan.routers, "cores", how),
        reported("day.workers", plan.workers, "cores", how),
        reported("day.brokers", plan.brokers, "cores", how),
        reported("day.waiting", memory / 1e6, "MB", f"{how}; the most that waits for workers"),
        reported("day.stored", plan.stored / 1e12, "TB", f"{how}; captures of {plan.kept} days"),
        reported("day.puts", plan.puts, "objects", f"{how}; a day"),
        reported("day.price", plan.price, "$", f"{how}; a day; {plan.prices}"),
        at_most("day.dropped", 100 * calm.dropped, "%", 0.1, f"{how}; simulated"),
        at_most("day.dropped_in_outages", 100 * struck.dropped, "%", 100 * LOST, outages),
        reported("day.longest_lag", struck.longest_lag, "s", outages),
    ]


def main() -> None:
    """Simulate and print."""
    sys.stdout.buffer.write(msgspec.json.encode(rows(Plan(float(sys.argv[1])))))


if __name__ == "__main__":
    main()
