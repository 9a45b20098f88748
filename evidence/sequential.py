"""E-processes: evidence that a candidate is worse, which may be looked at after every request.

An e-value has a mean of at most 1 while the candidate is no worse, at any moment that a rule made
from the past picks. So it reaches 1 / level once, ever, with a chance of at most `level` (J. Ville,
Étude critique de la notion de collectif, 1939; Ramdas, Grünwald, Vovk and Shafer, Game-theoretic
statistics and safe anytime-valid inference, Statistical Science 38, 2023): no number of looks has
to be planned. The e-values here are logarithms: evidence at `level` is `-log(level)`.

Both test a share on each side against an unknown threshold: if the candidate is no worse,
some threshold has the control's share at or above it and the candidate's at or below. For each
threshold, a bet that the control lies below and one that the candidate lies above are e-processes
of their own, and so is their product, since requests come one after the other. The smallest
product over all thresholds is at most the one at the true threshold (S. R. Howard and A. Ramdas,
Sequential estimation of quantiles with applications to A/B testing and best-arm identification,
Bernoulli 28, 2022, for quantiles). Requests may arrive in any order and at shares that change.

Requests have to be independent: of one conversation, pass one value. `evidence_by_turn` takes all
of them: the first requests of conversations are independent of each other, so are the second ones,
and so on. Each turn has an e-process of its own, by which a fault of late turns is found.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from evidence.intervals import CONFIDENCE

ALARM: Final = -log(1 - CONFIDENCE)
"""Evidence, as a logarithm, that is reached falsely with a chance of at most 5 %."""

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

_STEPS: Final = np.array([0.05, 0.15, 0.35, 0.8, 2.0])
"""What the bets take the log odds to be away from the threshold by, and the stakes on each."""
_STAKES: Final = np.array([0.1, 0.3, 0.3, 0.15, 0.15])
_FIRST: Final = 0.8
"""Of the level, what first requests have."""
_MOST_TURNS: Final = 20
_FURTHEST: Final = 40.0
_CELLS: Final = 256
_ROUNDS: Final = 4
_EXACT: Final = 1e-3


class TurnValues(NamedTuple):
    """The values of one side, and which turn of its conversation each one is, from 0."""

    values: Floats
    turns: Counts

    def of(self, turn: int) -> Floats:
        """Return the values of a turn."""
        found: Floats = self.values[self.turns == turn]
        return found


def evidence_by_turn(
    control: TurnValues, candidate: TurnValues, evidence: Callable[[Floats, Floats], float]
) -> float:
    """Return the log evidence against "at no turn the candidate is worse", by any one of them.

    `evidence` returns the log e-value of one turn's values. A turn is one of a conversation over
    both sides. How turns of a conversation depend on each other is not assumed: turn k alarms
    falsely, at any look, with a chance of at most `level * share_k`, by Ville in the time of its
    own requests, so that all of them together do with at most `level` (weighted Bonferroni). Their
    e-values must not be averaged instead: an e-process of one turn is none in the time of all
    (Y. J. Choe and A. Ramdas, Combining evidence across filtrations, 2024).
    """
    found = [0.0]
    for turn in range(_MOST_TURNS):
        first, second = control.of(turn), candidate.of(turn)
        if not (len(first) and len(second)):
            break
        share = (1 - _FIRST) / (turn * (turn + 1)) if turn else _FIRST  # 0.8, 0.1, 0.033 …: to 1
        found.append(evidence(first, second) + log(share))
    return max(found)


def failure_evidence(control: Floats, candidate: Floats) -> float:
    """Return the log e-value of `rate_evidence` for values of 0 and 1."""
    hits, more = (np.array(int(side.sum())) for side in (control, candidate))
    first, second = (hits, np.array(len(control))), (more, np.array(len(candidate)))
    return float(rate_evidence(first, second))


def percentile_evidence(control: Floats, candidate: Floats, p: float, margin: float = 0.0) -> float:
    """Return the log e-value against "the candidate's percentile is at most 1 + margin times".

    Both in ascending order; ties, discrete values and samples of any two sizes are allowed for.
    """
    if not (len(control) and len(candidate)):
        return 0.0
    # Between two values of the control the evidence falls as the threshold rises: only the values
    # themselves, and a threshold above all of them, can be where it is smallest.
    reaching = len(control) - np.arange(len(control) + 1)
    reaching[:-1] = len(control) - np.searchsorted(control, control, side="left")
    above = np.zeros_like(reaching)
    above[:-1] = len(candidate) - np.searchsorted(candidate, control * (1 + margin), side="right")
    threshold = np.array(logit(1 - p))
    evidence = _below(reaching, np.array(len(control)), threshold)
    evidence += _above(above, np.array(len(candidate)), threshold)
    return float(evidence.min())


def rate_evidence(
    control: tuple[Counts, Counts], candidate: tuple[Counts, Counts], margin: float = 0.0
) -> Floats:
    """Return log e-values against "the candidate's rate is at most the control's plus a margin".

    Each side is hits and trials, all of one shape. The smallest product is bounded from below: as
    the threshold rises, one factor rises and the other falls, so that between two thresholds it
    lies above the first's one times the second's other.
    """
    hits_a, n_a, hits_b, n_b = (side[..., None] for side in (*control, *candidate))
    low = np.full((*np.shape(control[0]), 1), -_FURTHEST)
    high = -low
    bound = np.zeros(low.shape)
    for _ in range(_ROUNDS):
        at = low + (high - low) * np.linspace(0.0, 1.0, _CELLS + 1)
        raised = logit(np.minimum(1 / (1 + np.exp(-at)) + margin, 1 - 1e-16)) if margin else at
        first, second = _below(hits_a, n_a, at), _above(hits_b, n_b, raised)
        least = first[..., :-1] + second[..., 1:]
        bound, reached = least.min(-1), (first + second).min(-1)
        if np.all(reached - bound < _EXACT):
            break
        open_ = least <= reached[..., None]
        left, right = open_.argmax(-1), _CELLS - open_[..., ::-1].argmax(-1)
        low, high = (np.take_along_axis(at, end[..., None], -1) for end in (left, right))
    return bound


def _below(hits: Counts, trials: Counts, threshold: Floats) -> Floats:
    """Return the log e-value against "the share is at least the threshold", a log odds."""
    return _won(-_STEPS, hits, trials, threshold)


def _above(hits: Counts, trials: Counts, threshold: Floats) -> Floats:
    """Return the log e-value against "the share is at most the threshold", a log odds."""
    return _won(_STEPS, hits, trials, threshold)


def _won(steps: Floats, hits: Counts, trials: Counts, threshold: Floats) -> Floats:
    """Return the log of the mean likelihood ratio of shares `steps` away from the threshold."""
    odds = threshold[..., None]
    cost = np.logaddexp(0, odds + steps) - np.logaddexp(0, odds)
    won = hits[..., None] * steps - trials[..., None] * cost
    most = won.max(-1)
    total: Floats = most + np.log(np.exp(won - most[..., None]) @ _STAKES)
    return total
