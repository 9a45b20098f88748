"""Ramps over simulated days: with a fault from a random step on, and without one.

The clock is simulated, the exchanges are drawn, the ramp and the gate are the real ones.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec
import numpy as np

from benchmarks.rows import BenchRow, at_least, at_most, reported
from cutover.gate import gate_rules
from cutover.ramp.flags import FakeFlags
from cutover.ramp.machine import Flags, Phase, Plan, begin
from cutover.ramp.runner import Ramp
from cutover.ramp.state import MemoryState
from evidence.decision import Decision
from evidence.gate import GateEvidence, PairFindings, decision_of
from evidence.outcomes import ExchangeOutcome
from router.config.schema import GateSettings

PLAN: Final = Plan(steps=(5.0, 25.0, 50.0, 100.0), hold=3_600.0, passes=3, interval=1_200.0)
DAY: Final = 86_400.0
RATE: Final = 2.0
"""Requests a second."""
SIGMA: Final = 0.3
"""Of the logarithm of times."""
SLOWER: Final = 1.4
FAILING: Final = 0.05
RULES: Final = gate_rules(
    GateSettings.model_validate(
        {"margins": {"failures": 0.02, "ttft_p95": 0.2, "e2e_p95": 0.2}}, strict=False
    )
)
_MICROSECONDS: Final = 1_000_000
_BUCKETS: Final = 100_000

Fault = Literal["", "slow", "fallback", "error"]
FAULTS: Final[tuple[Fault, ...]] = ("slow", "fallback", "error")


@dataclass
class Day:
    """One simulated day: its traffic, its fault, and the ramp's clock."""

    draw: np.random.Generator
    fault: Fault
    fault_at: float
    flags: FakeFlags = field(default_factory=FakeFlags)
    time: float = 0.0
    rows: list[ExchangeOutcome] = field(default_factory=list)

    def now(self) -> float:
        """Return the time of day in seconds."""
        return self.time

    def wait(self, seconds: float) -> bool:
        """Serve requests for a while; return False at the end of the day."""
        share = self.flags.flags.share
        faulty = bool(self.fault) and share >= self.fault_at
        for moment in np.sort(self.draw.uniform(0, seconds, self.draw.poisson(RATE * seconds))):
            self.rows.append(self._exchange(self.time + float(moment), share, faulty=faulty))
        self.time += seconds
        return self.time < DAY

    def decide(self, to: float, since: float | None) -> Decision:
        """Ask the real gate about the rows of the step."""
        percent = self.flags.flags.percent
        evidence = GateEvidence(
            flow="chat",
            percent=percent,
            to=to,
            in_force=True,
            outcomes=[one for one in self.rows if one.began >= (since or 0.0) * _MICROSECONDS],
            findings=PairFindings(pairs=500, due=500),
            live=percent > 0,
        )
        return decision_of(evidence, RULES)

    def _exchange(self, at: float, share: float, *, faulty: bool) -> ExchangeOutcome:
        bucket = int(self.draw.integers(_BUCKETS))
        graph = bucket < share * _BUCKETS / 100
        first, last, failed, gap = (
            float(self.draw.lognormal(0.0, SIGMA)),
            float(self.draw.lognormal(1.0, SIGMA)),
            bool(self.draw.random() < FAILING),
            float(self.draw.lognormal(-3.0, SIGMA)),
        )
        broken = graph and faulty
        if broken and self.fault == "slow":
            first, last = SLOWER * first, SLOWER * last
        took_over = broken and failed and self.fault == "fallback"
        return ExchangeOutcome(
            exchange=f"{len(self.rows)}",
            flow="chat",
            assigned="graph" if graph else "legacy",
            served="graph" if graph and not took_over else "legacy",
            began=int(at * _MICROSECONDS),
            end="failed" if broken and failed and self.fault == "error" else "completed",
            reason="percent",
            assigned_by="percent",
            bucket=bucket,
            fallback="fallback" if took_over else "",
            first_frame=int(first * _MICROSECONDS),
            first_text=int(first * _MICROSECONDS),
            longest_gap=int(gap * _MICROSECONDS),
            last_frame=int((first + last) * _MICROSECONDS),
            prompt_tokens=100,
            completion_tokens=int(self.draw.poisson(200)),
        )


class DayResult(msgspec.Struct, frozen=True):
    """How a day ended, the highest percentage, and whether it was raised at a fault."""

    phase: Phase
    highest: float
    past: bool


def run_day(seed: int, fault: Fault) -> DayResult:
    """Run the ramp over one day; the fault is there from a random step below 100 % on."""
    draw = np.random.default_rng(seed)
    day = Day(draw, fault, float(draw.choice(PLAN.steps[:-1])))
    state = begin("chat", Flags(enabled=True, percent=0.0), 0.0)
    ramp = Ramp(state, PLAN, day.flags, MemoryState(), day.decide, day)
    seen: list[float] = []
    ramp.run(lambda one: seen.append(one.flags.percent))
    highest = max(seen)
    return DayResult(ramp.state.phase, highest, bool(fault) and highest > day.fault_at)


def measure(days: int) -> list[BenchRow]:
    """Run so many days of each kind."""
    with ProcessPoolExecutor(2) as pool:
        broken = [pool.submit(run_day, seed, FAULTS[seed % 3]) for seed in range(days)]
        sound = [pool.submit(run_day, 1_000 + seed, "") for seed in range(days)]
        faulty, equal = ([one.result() for one in some] for some in (broken, sound))
    how = (
        f"{days} simulated days each, {RATE:g} requests/s, log-normal times (σ {SIGMA}), steps "
        f"{', '.join(f'{one:g}' for one in PLAN.steps)} %, held for an hour, a look every "
        f"{PLAN.interval / 60:g} min; faults: {SLOWER:g} × slower, or {FAILING:.0%} failing, "
        "hidden by fallback or not"
    )
    rolled_back = sum(one.phase == "rolled_back" for one in faulty)
    past = sum(one.past for one in faulty)
    return [
        at_most("promoted past a fault", past, "days", 0, how),
        at_least("rolled back at a fault", rolled_back, "days", days, how),
        at_most(
            "rolled back without a fault",
            sum(one.phase == "rolled_back" for one in equal),
            *("days", 0, how),
        ),
        reported(
            "reached 100 % without a fault",
            sum(one.highest == PLAN.steps[-1] for one in equal),
            *("days", how),
        ),
    ]


def main() -> None:
    """Write the rows as JSON."""
    sys.stdout.buffer.write(msgspec.json.encode(measure(int(sys.argv[1]))))


if __name__ == "__main__":
    main()
