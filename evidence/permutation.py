"""Permutation tests: what a difference could have been, had chance labelled the runs.

Beside one run of the control stand others of the control and some of the candidate. If the
candidate behaves as the control does, any choice of runs to be called the candidate's was as
likely: the differences under all these choices are what chance gives. With one run of each that is
the sign-flip test. E. J. G. Pitman, Significance tests which may be applied to samples from any
populations (1937); P. I. Good, Permutation, parametric and bootstrap tests of hypotheses (2005), 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

EXACT_UP_TO = 1 << 16
DRAWS = 9_999
_SEED = 0
SLACK = 1e-9
"""Distances are fractions: what differs by less is a tie, and ties count against a finding."""

Choices = NDArray[np.float64]
"""A message's difference under every choice; the first is the one that was made."""


class Chance(NamedTuple):
    """The share of choices that give as much as was seen; `resolution` is the least it can be."""

    p: float
    resolution: float
    exact: bool


def choices_of(control: Sequence[float], candidate: Sequence[float], seed: int = 0) -> Choices:
    """List the candidate's mean less the control's under every choice of the candidate's runs.

    Where there are over `EXACT_UP_TO` choices, `DRAWS` of them and the one that was made.
    """
    pool = np.array([*candidate, *control], dtype=np.float64)
    if math.comb(len(pool), len(candidate)) > EXACT_UP_TO:
        random = np.random.default_rng(seed)
        drawn = random.permuted(np.tile(pool, (DRAWS, 1)), axis=1)
        chosen = np.vstack([pool, drawn])[:, : len(candidate)].sum(axis=1)
    else:
        picks = combinations(range(len(pool)), len(candidate))
        chosen = pool[np.array(list(picks))].sum(axis=1)
    found: Choices = chosen / len(candidate) - (pool.sum() - chosen) / len(control)
    return found


def chance_of_one(choices: Choices) -> float:
    """Return the p-value of one message: the rank of what was seen among all choices."""
    return float(np.mean(choices >= choices[0] - SLACK))


def chance_of_flag(choices: Choices, level: float) -> float:
    """Return how likely chance alone makes the p-value of a message `level` or less."""
    ordered = np.sort(choices)
    reached = len(ordered) - np.searchsorted(ordered, choices - SLACK, side="left")
    return float(np.mean(reached / len(ordered) <= level))


def chance_of_all(messages: Sequence[Choices]) -> Chance:
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
    reached = int(np.count_nonzero(_drawn_sums(moving) >= seen - SLACK))
    return Chance((1 + reached) / (1 + DRAWS), 1 / (1 + DRAWS), exact=False)


def _every_sum(messages: Sequence[Choices]) -> Choices:
    sums = np.zeros(1)
    for choices in messages:
        sums = np.add.outer(sums, choices).ravel()
    return sums


def _drawn_sums(messages: Sequence[Choices]) -> Choices:
    random = np.random.default_rng(_SEED)
    sums = np.zeros(DRAWS)
    for choices in messages:
        sums += choices[random.integers(len(choices), size=DRAWS)]
    return sums
