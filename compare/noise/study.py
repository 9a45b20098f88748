"""Relabelling: what a difference could have been, had it been chance which run is the graph's.

Beside one legacy run of a message stand others of legacy and some of graph. If the graph answers as
legacy does, any choice of runs to be called graph's was as likely: the differences under all these
choices are what chance gives. With one run of each that is the sign-flip test. E. J. G. Pitman,
Significance tests which may be applied to samples from any populations (1937); P. I. Good,
Permutation, parametric and bootstrap tests of hypotheses (2005), 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, groupby
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from compare.noise.distances import MEASURES, Distances, Measure
from evidence import CONFIDENCE, holm, mean_interval, needed_for_mean, needed_for_rare

EXACT_UP_TO = 1 << 16
DRAWS = 9_999
SLACK = 1e-9
"""Distances are fractions: what differs by less is a tie, and ties count against a finding."""

Choices = NDArray[np.float64]
"""A message's difference under every choice; the first is the one that was made."""


class Chance(NamedTuple):
    """The share of choices that give as much as was seen; `resolution` is the least it can be."""

    p: float
    resolution: float
    exact: bool


def choices_of(again: Sequence[float], graph: Sequence[float], seed: int = 0) -> Choices:
    """List mean distance of graph less that of legacy under every choice of graph's runs.

    Where there are over `EXACT_UP_TO` choices, `DRAWS` of them and the one that was made.
    """
    pool = np.array([*graph, *again], dtype=np.float64)
    if math.comb(len(pool), len(graph)) > EXACT_UP_TO:
        random = np.random.default_rng(seed)
        drawn = random.permuted(np.tile(pool, (DRAWS, 1)), axis=1)
        chosen = np.vstack([pool, drawn])[:, : len(graph)].sum(axis=1)
    else:
        picks = combinations(range(len(pool)), len(graph))
        chosen = pool[np.array(list(picks))].sum(axis=1)
    found: Choices = chosen / len(graph) - (pool.sum() - chosen) / len(again)
    return found


def chance_of_one(choices: Choices) -> float:
    """Return the p-value of one message: the rank of what was seen among all choices."""
    return float(np.mean(choices >= choices[0] - SLACK))


def chance_of_flag(choices: Choices, level: float) -> float:
    """Return how likely chance alone makes the p-value of a message `level` or less."""
    ordered = np.sort(choices)
    reached = len(ordered) - np.searchsorted(ordered, choices - SLACK, side="left")
    return float(np.mean(reached / len(ordered) <= level))


def chance_of_all(messages: Sequence[Choices], seed: int = 0) -> Chance:
    """Return the one-sided p-value of the sum over messages.

    Exact where all choices together are `EXACT_UP_TO` or fewer, else from seeded draws, counting
    what was seen as one of them (Phipson and Smyth, Permutation p-values should never be zero,
    2010).
    """
    moving = [choices for choices in messages if np.ptp(choices) > SLACK]
    seen = sum(float(choices[0]) for choices in moving)
    logs = sum(math.log2(len(choices)) for choices in moving)
    if logs <= math.log2(EXACT_UP_TO):
        sums = _every_sum(moving)
        return Chance(float(np.mean(sums >= seen - SLACK)), 1 / len(sums), exact=True)
    reached = int(np.count_nonzero(_drawn_sums(moving, seed) >= seen - SLACK))
    return Chance((1 + reached) / (1 + DRAWS), 1 / (1 + DRAWS), exact=False)


def _every_sum(messages: Sequence[Choices]) -> Choices:
    sums = np.zeros(1)
    for choices in messages:
        sums = np.add.outer(sums, choices).ravel()
    return sums


def _drawn_sums(messages: Sequence[Choices], seed: int) -> Choices:
    random = np.random.default_rng(seed)
    sums = np.zeros(DRAWS)
    for choices in messages:
        sums += choices[random.integers(len(choices), size=DRAWS)]
    return sums


LEVEL = 1 - CONFIDENCE
MARGIN = 0.05
NAMED_AT_MOST = 20
Reading = Literal["exceeds", "within noise", "cannot tell"]


class MeasuredMessage(msgspec.Struct, frozen=True):
    """One message: how far other legacy runs, and the graph's, are from one legacy run."""

    exchange: str
    flow: str
    again: tuple[Distances, ...]
    graph: tuple[Distances, ...]


class FlaggedMessage(msgspec.Struct, frozen=True):
    """A message whose graph runs are farther from legacy than chance explains."""

    exchange: str
    p: float
    again: float
    graph: float


class Judgement(msgspec.Struct, frozen=True):
    """One measure of one flow.

    `again` and `graph` are mean distances legacy–legacy and legacy–graph, `difference` that of
    graph less that of legacy, between `low` and `high`. `more` and `less` count messages by its
    sign. `needed` messages would tell. Of the `flaggable` messages, those with runs enough, chance
    alone flags `by_chance`; `named` are the first that are.
    """

    flow: str
    measure: Measure
    reading: Reading
    messages: int
    again: float
    graph: float
    difference: float
    low: float
    high: float
    p: float
    resolution: float
    exact: bool
    more: int
    less: int
    needed: int
    flaggable: int
    flagged: int
    by_chance: float
    named: tuple[FlaggedMessage, ...] = ()


class Study(msgspec.Struct, frozen=True):
    """The noise of live model calls, measured; `left_out` counts messages by reason."""

    reading: Reading
    messages: int
    margin: float
    judgements: tuple[Judgement, ...]
    left_out: dict[str, int]


def study_of(
    messages: Sequence[MeasuredMessage],
    left_out: Mapping[str, int] | None = None,
    margin: float = MARGIN,
) -> Study:
    """Judge every measure of every flow; equal arguments give equal studies.

    `margin` is the least mean difference worth knowing, as a share.
    """
    ordered = sorted(messages, key=lambda message: (message.flow, message.exchange))
    samples = [
        _Sample(flow, measure, group)
        for flow, group in ((f, list(g)) for f, g in groupby(ordered, key=lambda m: m.flow))
        for measure in MEASURES
    ]
    real = holm([sample.chance.p for sample in samples], LEVEL)
    strictest = LEVEL / max(1, len(samples))
    judged = [s.judged(margin, strictest, real=r) for s, r in zip(samples, real, strict=True)]
    counts = dict(sorted((left_out or {}).items()))
    return Study(_whole(judged), len(ordered), margin, tuple(judged), counts)


def _whole(judged: Sequence[Judgement]) -> Reading:
    readings = {judgement.reading for judgement in judged}
    if "exceeds" in readings:
        return "exceeds"
    return "within noise" if readings == {"within noise"} else "cannot tell"


class _Sample:
    """The distances of one measure, in all messages of a flow."""

    def __init__(self, flow: str, measure: Measure, messages: Sequence[MeasuredMessage]) -> None:
        self._flow, self._measure, self._messages = flow, measure, messages
        index = MEASURES.index(measure)
        self._again = [[far[index] for far in message.again] for message in messages]
        self._graph = [[far[index] for far in message.graph] for message in messages]
        self._choices: list[Choices] = [
            choices_of(again, graph, seed)
            for seed, (again, graph) in enumerate(zip(self._again, self._graph, strict=True))
        ]
        self.chance: Chance = chance_of_all(self._choices)

    def judged(self, margin: float, strictest: float, *, real: bool) -> Judgement:
        seen = np.array([choices[0] for choices in self._choices])
        low, high = mean_interval(seen)
        enough = needed_for_rare(margin)
        within = len(seen) >= enough and high < margin
        flagged = self._flagged()
        return Judgement(
            flow=self._flow,
            measure=self._measure,
            reading="exceeds" if real else "within noise" if within else "cannot tell",
            messages=len(seen),
            again=_mean_of_means(self._again),
            graph=_mean_of_means(self._graph),
            difference=float(seen.mean()),
            low=low,
            high=high,
            p=self.chance.p,
            resolution=self.chance.resolution,
            exact=self.chance.exact,
            more=int(np.count_nonzero(seen > 0)),
            less=int(np.count_nonzero(seen < 0)),
            needed=0 if real or within else _needed(seen, margin, strictest, enough),
            flaggable=sum(1 / len(choices) <= LEVEL for choices in self._choices),
            flagged=len(flagged),
            by_chance=sum(chance_of_flag(choices, LEVEL) for choices in self._choices),
            named=tuple(flagged[:NAMED_AT_MOST]),
        )

    def _flagged(self) -> list[FlaggedMessage]:
        """List the messages in which what was seen is among the rarest choices."""
        found = [
            FlaggedMessage(message.exchange, chance_of_one(choices), _mean(again), _mean(graph))
            for message, choices, again, graph in zip(
                self._messages, self._choices, self._again, self._graph, strict=True
            )
        ]
        return sorted(
            (flag for flag in found if flag.p <= LEVEL),
            key=lambda flag: (flag.p, flag.again - flag.graph, flag.exchange),
        )


def _needed(seen: NDArray[np.float64], margin: float, level: float, enough: int) -> int:
    """Return how many messages would tell, were they like these: one way or the other."""
    mean = float(seen.mean())
    spread = float(seen.std(ddof=1)) if len(seen) > 1 else margin
    told = needed_for_mean(spread, max(margin - mean, mean), level)
    return max(told, enough, len(seen) + 1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _mean_of_means(values: Sequence[Sequence[float]]) -> float:
    return _mean([_mean(of_message) for of_message in values])
