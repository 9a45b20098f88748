"""Student's t for whole degrees of freedom, in closed form.

Abramowitz and Stegun 26.7.3 (odd) and 26.7.4 (even); exact but for rounding.
"""

from __future__ import annotations

from math import atan, cos, pi, sin, sqrt

FAR = 1e6


def within(t: float, freedom: int) -> float:
    """P(-t ≤ T ≤ t) for t ≥ 0 and `freedom` ≥ 1."""
    theta = atan(t / sqrt(freedom))
    cosine_squared = cos(theta) ** 2
    if freedom % 2 == 0:
        return sin(theta) * _series(cosine_squared, freedom // 2, 1)
    if freedom == 1:
        return 2 * theta / pi
    return 2 / pi * (theta + sin(theta) * cos(theta) * _series(cosine_squared, freedom // 2, 2))


def _series(square: float, terms: int, first: int) -> float:
    """1 + first/(first+1)·square + …, each factor two further on, `terms` terms in all."""
    term = total = 1.0
    for factor in range(first, first + 2 * (terms - 1), 2):
        term *= square * factor / (factor + 1)
        total += term
    return total


def critical(confidence: float, freedom: int) -> float:
    """Find the t with P(-t ≤ T ≤ t) = `confidence`, by bisection."""
    low, high = 0.0, FAR
    while high - low > 1e-9 * max(1.0, low):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, freedom) < confidence else (low, middle)
    return high
