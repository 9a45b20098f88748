"""Power: how many cases it takes to tell."""

from __future__ import annotations

from math import ceil, log, log1p

from scipy.special import ndtri

from evidence.intervals import CONFIDENCE, RatioEstimate

POWER = 0.8
PROMOTING = 0.95
"""How often an equal candidate is to be found no worse at the planned size.

More than the 90 % that are wanted: a pilot knows its own spread only roughly.
"""


def needed_for_mean(spread: float, gap: float, level: float) -> int:
    """Return how many cases tell a mean from one `gap` away, one-sided, with power `POWER`.

    ((z of the level + z of the power) * standard deviation / gap) squared; Cohen, Statistical
    power analysis for the behavioral sciences (1988), 2.
    """
    z = float(ndtri(1 - level) + ndtri(POWER))
    return ceil((z * spread / gap) ** 2)


def needed_for_rare(share: float) -> int:
    """Return how many cases show one that `share` of all are like, with 95 %.

    (1 - share) ** n <= 0.05: the rule of three, Hanley and Lippman-Hand, JAMA 249 (1983).
    """
    return ceil(log(1 - CONFIDENCE) / log(1 - share))


def needed_for_no_worse(
    pilot: RatioEstimate, n: int, margin: float, power: float = PROMOTING
) -> int:
    """Return the requests a side that show an equal candidate to be less than `margin` worse.

    As often as `power` says, by the 95 % interval of their ratio ending below 1 + margin. `pilot`
    is such a ratio of `n` requests a side, of two halves of one stack for example: its width holds
    what conversations and the shape of the times do. S. A. Julious, Sample sizes for clinical
    trials with normal data, Statistics in Medicine 23 (2004), 6: non-inferiority.
    """
    z = float(ndtri((1 + CONFIDENCE) / 2))
    error = log(pilot.high / pilot.low) / (2 * z)
    return ceil(n * ((z + float(ndtri(power))) * error / log1p(margin)) ** 2)


def needed_for_no_more(share: float, margin: float, power: float = PROMOTING) -> int:
    """Return the requests a side that show an equal share to be less than `margin` higher.

    The normal approximation of two independent shares; Julious (2004), 6.
    """
    z = float(ndtri((1 + CONFIDENCE) / 2) + ndtri(power))
    return ceil(2 * share * (1 - share) * (z / margin) ** 2)
