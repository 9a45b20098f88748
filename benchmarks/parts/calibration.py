"""Calibration of the statistics that decide: how often they are wrong and find what is there.

Requests are simulated: times are log-normal or of two modes, failures are drawn.

python -m benchmarks.parts.calibration SIMULATIONS
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from statistics import median
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from benchmarks.rows import SEED, BenchRow, at_least, at_most, reported
from evidence.intervals import RatioEstimate, Sample, percentile_ratio
from evidence.power import PROMOTING, needed_for_no_worse
from evidence.sequential import (
    ALARM,
    TurnValues,
    evidence_by_turn,
    failure_evidence,
    percentile_evidence,
    rate_evidence,
)
from evidence.tests import MISMATCH, binomial, paired_mean, paired_median

P: Final = 0.95
LOOKS: Final = 50
REQUESTS: Final = 2_500
MARGIN: Final = 0.15
PILOT: Final = 10_000
"""Requests on each side of the pilot that the planned size is computed from."""
TURNS: Final = 6
"""Conversations have one to so many requests."""
SHARED: Final = 0.3
"""Of the variance of log times lies between conversations."""
TWO_MODES: Final = (0.2, 4.0, 0.3)
"""Share of slow requests, how many times slower they are, and σ within each mode."""
_CHANCE: Final = 0.05

Floats = NDArray[np.float64]
Times = Callable[[np.random.Generator, int], Floats]


def log_normal(sigma: float) -> Times:
    """Return a source of independent log-normal times, median 1."""
    return lambda random, n: np.exp(sigma * random.standard_normal(n))


def bimodal(random: np.random.Generator, n: int) -> Floats:
    """Draw times of which some are several times slower."""
    slow, times, sigma = TWO_MODES
    return np.where(random.random(n) < slow, times, 1.0) * log_normal(sigma)(random, n)


def conversations(random: np.random.Generator, n: int, sigma: float = 0.6) -> Sample:
    """Draw log-normal times of about `n` requests in conversations whose times are alike."""
    sizes = random.integers(1, TURNS + 1, size=2 * n // (TURNS + 1) + 1)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    between = np.sqrt(SHARED) * random.standard_normal(len(sizes))[owners]
    within = np.sqrt(1 - SHARED) * random.standard_normal(len(owners))
    return Sample(np.exp(sigma * (between + within)), owners)


SHAPES: Final[dict[str, Times]] = {
    "log_normal_0.6": log_normal(0.6),
    "log_normal_1.0": log_normal(1.0),
    "bimodal": bimodal,
}
RATES: Final = ((0.0, 0.01), (0.001, 0.01), (0.01, 0.03))
EQUAL_RATES: Final = (0.001, 0.01, 0.1)


def main() -> None:
    """Simulate and print the rows as JSON."""
    sys.stdout.buffer.write(msgspec.json.encode(list(measure(int(sys.argv[1])))))


def measure(simulations: int) -> Iterator[BenchRow]:
    """Yield the rows of every statistic, each over so many simulations."""
    yield from sequential_percentiles(simulations)
    yield from sequential_rates(simulations)
    yield from sequential_turns(simulations)
    yield from no_worse(simulations)
    yield from sample_ratios(simulations)
    yield from pairs(simulations)


def sequential_percentiles(simulations: int) -> Iterator[BenchRow]:
    """Look at P95 of equal and of slower candidates."""
    looks = f"{LOOKS} looks at P95, to {REQUESTS:,} requests a side, {simulations:,} simulations"
    for name, draw in SHAPES.items():
        ends = [
            first_alarm(draw, 1.0, random) for random in simulated(f"{name} equal", simulations)
        ]
        yield at_most(
            f"calibration.percentile.{name}.false_alarms", found(ends), "", _CHANCE, looks
        )
        ends = [
            first_alarm(draw, 1.2, random) for random in simulated(f"{name} slower", simulations)
        ]
        figure, how = f"calibration.percentile.{name}.slower_20", f"candidate 20 % slower; {looks}"
        yield (
            at_least(f"{figure}.found", found(ends), "", 0.95, how)
            if name == "log_normal_0.6"
            else reported(f"{figure}.found", found(ends), "", how)
        )
        if median(ends) < inf:
            yield reported(f"{figure}.median", median(ends), "requests a side", how)


def first_alarm(draw: Times, ratio: float, random: np.random.Generator) -> float:
    """Return after how many requests a side a simulated rollout alarms; infinity: never."""
    control, candidate = draw(random, REQUESTS), ratio * draw(random, REQUESTS)
    for n in range(REQUESTS // LOOKS, REQUESTS + 1, REQUESTS // LOOKS):
        if percentile_evidence(np.sort(control[:n]), np.sort(candidate[:n]), P) >= ALARM:
            return n
    return inf


def sequential_rates(simulations: int) -> Iterator[BenchRow]:
    """Look at failure rates of equal and of failing candidates."""
    looks = f"{LOOKS} looks, to {REQUESTS:,} requests a side, {simulations:,} simulations"
    for rate in EQUAL_RATES:
        ends = alarms_of_rates(rate, rate, simulations)
        name = f"calibration.rate.{rate:g}.false_alarms"
        yield at_most(name, found(ends), "", _CHANCE, f"equal failure rates; {looks}")
    for control, candidate in RATES:
        ends = alarms_of_rates(control, candidate, simulations)
        name = f"calibration.rate.{control:g}_to_{candidate:g}"
        yield reported(f"{name}.found", found(ends), "", f"failure rates; {looks}")
        if median(ends) < inf:
            yield reported(f"{name}.median", median(ends), "requests a side", looks)


def alarms_of_rates(control: float, candidate: float, simulations: int) -> Sequence[float]:
    """Return after how many requests a side each rollout alarms; infinity: never."""
    step = REQUESTS // LOOKS
    n = step * np.arange(1, LOOKS + 1)
    ends = []
    for random in simulated(f"rates {control:g} {candidate:g}", simulations):
        first, second = (random.binomial(step, r, LOOKS).cumsum() for r in (control, candidate))
        alarms = rate_evidence((first, n), (second, n)) >= ALARM
        ends.append(float(n[alarms.argmax()]) if alarms.any() else inf)
    return ends


def sequential_turns(simulations: int) -> Iterator[BenchRow]:
    """Look at all requests of conversations whose turns are alike, after a fault of late ones."""
    looks = (
        f"{LOOKS} looks, to {REQUESTS:,} requests a side; conversations of 1 to {TURNS} requests, "
        f"some of which fail often; {simulations:,} simulations"
    )
    for name, worse, from_turn in (("equal", 0.0, 0), ("first", 0.03, 0), ("second", 0.05, 1)):
        ends = [
            first_alarm_of_turns(worse, from_turn, random)
            for random in simulated(f"turns {name}", simulations)
        ]
        if name == "equal":
            yield at_most("calibration.turns.false_alarms", found(ends), "", _CHANCE, looks)
            continue
        how = f"{worse:.0%} more failures from the {name} turn on; {looks}"
        yield reported(f"calibration.turns.{name}.found", found(ends), "", how)
        if median(ends) < inf:
            yield reported(f"calibration.turns.{name}.median", median(ends), "requests a side", how)
    for name, ratio in (("equal", 1.0), ("slower_20", 1.2)):
        ends = [
            first_alarm_of_times(ratio, random)
            for random in simulated(f"times of turns {name}", simulations)
        ]
        how = f"P95 of times, σ 0.6, {SHARED:.0%} of the variance between conversations; {looks}"
        if name == "equal":
            yield at_most("calibration.turns.p95.false_alarms", found(ends), "", _CHANCE, how)
        else:
            yield reported(f"calibration.turns.p95.{name}.found", found(ends), "", how)


def failing_conversations(
    random: np.random.Generator, worse: float, from_turn: int
) -> tuple[Floats, NDArray[np.int64]]:
    """Draw failures in the order of requests, which conversations interleave, and their turns.

    A conversation fails at a rate of its own, on average 2 %, most of them hardly ever.
    """
    sample = conversations(random, REQUESTS)
    starts = np.unique(sample.conversations, return_index=True)[1]
    turns = np.arange(len(sample.values)) - starts[sample.conversations]
    rates = random.beta(0.1, 4.9, len(starts))[sample.conversations]
    fails = random.random(len(turns)) < rates + worse * (turns >= from_turn)
    began = random.random(len(starts))[sample.conversations]
    order = np.argsort(began + 0.02 * turns, kind="stable")
    return fails[order].astype(float), turns[order]


def first_alarm_of_turns(worse: float, from_turn: int, random: np.random.Generator) -> float:
    """Return after how many requests a side failures of all turns alarm; infinity: never."""
    control = failing_conversations(random, 0.0, 0)
    candidate = failing_conversations(random, worse, from_turn)
    return _first_alarm(control, candidate, failure_evidence)


def first_alarm_of_times(ratio: float, random: np.random.Generator) -> float:
    """Return after how many requests a side times of all turns alarm; infinity: never."""
    sides = []
    for times in (1.0, ratio):
        sample = conversations(random, REQUESTS)
        starts = np.unique(sample.conversations, return_index=True)[1]
        turns = np.arange(len(sample.values)) - starts[sample.conversations]
        order = np.argsort(random.random(len(starts))[sample.conversations] + 0.02 * turns)
        sides.append((times * sample.values[order], turns[order]))
    first, second = sides
    return _first_alarm(first, second, lambda a, b: percentile_evidence(np.sort(a), np.sort(b), P))


def _first_alarm(
    control: tuple[Floats, NDArray[np.int64]],
    candidate: tuple[Floats, NDArray[np.int64]],
    evidence: Callable[[Floats, Floats], float],
) -> float:
    for n in range(REQUESTS // LOOKS, REQUESTS + 1, REQUESTS // LOOKS):
        first, second = (TurnValues(v[:n], turns[:n]) for v, turns in (control, candidate))
        if evidence_by_turn(first, second, evidence) >= ALARM:
            return n
    return inf


def no_worse(simulations: int) -> Iterator[BenchRow]:
    """Promote by the interval of the ratio of P95s, at the size that a pilot plans."""
    random = np.random.default_rng(SEED)
    data = (
        f"conversations of 1 to {TURNS} requests, log-normal, σ 0.6, {SHARED:.0%} of the variance "
        "between conversations"
    )
    pilot = percentile_ratio(conversations(random, PILOT), conversations(random, PILOT), P)
    if pilot is None:
        raise RuntimeError(PILOT)
    for margin in (0.05, 0.1, 0.2):
        yield reported(
            f"calibration.no_worse.planned_{margin * 100:.0f}",
            needed_for_no_worse(pilot, PILOT, margin),
            "requests a side",
            f"planned to promote {PROMOTING:.0%} of equal candidates, margin {margin:.0%}; {data}",
        )
    n = needed_for_no_worse(pilot, PILOT, MARGIN)
    how = (
        f"{data}; clustered bootstrap of P95, margin {MARGIN:.0%}, {n:,} requests a "
        f"side; {simulations:,} simulations"
    )
    yield reported("calibration.no_worse.planned_15", n, "requests a side", how)
    equal = [promotes(n, 1.0, random) for random in simulated("equal", simulations)]
    yield at_least("calibration.no_worse.equal.promoted", float(np.mean(equal)), "", 0.9, how)
    slower = [promotes(n, 1.15, random) for random in simulated("slower", simulations)]
    yield at_most(
        "calibration.no_worse.slower_15.promoted", float(np.mean(slower)), "", _CHANCE, how
    )


def promotes(n: int, ratio: float, random: np.random.Generator) -> bool:
    """Whether a candidate so many times slower is found less than the margin worse."""
    control, candidate = conversations(random, n), conversations(random, n)
    slower = Sample(ratio * candidate.values, candidate.conversations)
    interval: RatioEstimate | None = percentile_ratio(control, slower, P)
    return interval is not None and interval.high < 1 + MARGIN


def sample_ratios(simulations: int) -> Iterator[BenchRow]:
    """Split 20 000 conversations evenly, and 52 to 48."""
    how = f"20,000 conversations, p < {MISMATCH:g}; {20 * simulations:,} simulations"
    random, trials = np.random.default_rng(SEED), 20_000

    def mismatches(share: float) -> float:
        hits = random.binomial(trials, share, 20 * simulations)
        return float(np.mean([binomial(int(one), trials, 0.5) < MISMATCH for one in hits]))

    yield at_most("calibration.sample_ratio.false_alarms", mismatches(0.5), "", 2 * MISMATCH, how)
    yield at_least("calibration.sample_ratio.52_to_48.found", mismatches(0.52), "", 0.95, how)


def pairs(simulations: int) -> Iterator[BenchRow]:
    """Compare few pairs of runs by their mean, and many pairs of requests by their median."""
    for name, size, test in (("mean", 5, paired_mean), ("median", 500, paired_median)):
        rejected = []
        for random in simulated(f"pairs {name}", 4 * simulations):
            shared = random.standard_cauchy(size) if name == "median" else np.zeros(size)
            first, second = np.exp(0.2 * random.standard_normal((2, size)))
            control, candidate = np.exp(np.clip(shared, -50, 50)) * (first, second)
            rejected.append(test(control.tolist(), candidate.tolist()).p < _CHANCE)
        how = f"{size} pairs of equal stacks, 5 % two-sided; {4 * simulations:,} simulations"
        yield reported(f"calibration.pairs.{name}.false_alarms", float(np.mean(rejected)), "", how)


def found(ends: Sequence[float]) -> float:
    """Return the share of rollouts that alarmed."""
    return sum(end < inf for end in ends) / len(ends)


def simulated(name: str, simulations: int) -> Iterable[np.random.Generator]:
    """Yield a generator a simulation, the same ones each time, behind a bar of progress."""
    seeds = np.random.SeedSequence([SEED, *name.encode()]).spawn(simulations)
    shown = track(seeds, name, transient=True, disable=not sys.stderr.isatty())
    return (np.random.default_rng(seed) for seed in shown)


if __name__ == "__main__":
    main()
