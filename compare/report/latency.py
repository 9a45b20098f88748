"""Latency: exact percentiles with intervals, and a histogram, of every series of times."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from compare.tally import Series
from evidence.intervals import percentile_with_interval

METHOD = "nearest rank (the smallest value that at least that share of the runs does not exceed)"
INTERVAL = "95 % interval from order statistics (exact binomial); – where too few runs bound it"
SHARES = (0.5, 0.95, 0.99)
BINS = 48
METRICS = ("first", "text", "end")
ROLES = ("serving", "fallback", "shadow", "replay")
SERVED = frozenset({"serving", "fallback"})
"""Roles whose times users waited for; those of shadows and replays compare with none of them."""

Values = NDArray[np.int64]


class Percentile(msgspec.Struct, frozen=True):
    """A percentile in microseconds, and the interval it lies in; None: not bounded."""

    share: float
    value: int
    low: int | None
    high: int | None


class Latency(msgspec.Struct, frozen=True):
    """The times of one stack in one role: `first` event (TTFE), first `text` (TTFO), `end`.

    `histogram` counts runs in bins of equal width on a logarithmic axis from `axis_low` to
    `axis_high` microseconds, the same axis for all `served` series of a flow and metric, and
    another for all others.
    """

    flow: str
    stack: str
    role: str
    metric: str
    runs: int
    percentiles: tuple[Percentile, ...]
    axis_low: int
    axis_high: int
    histogram: tuple[int, ...]

    @property
    def served(self) -> bool:
        """Whether users waited for these runs."""
        return self.role in SERVED


def latencies(times: Mapping[Series, array[int]]) -> tuple[Latency, ...]:
    """Summarise every series, in the order flow, metric, role, stack (legacy first)."""
    ordered: dict[Series, Values] = {
        series: np.sort(np.asarray(values, dtype=np.int64)) for series, values in times.items()
    }

    def axis_of(series: Series) -> tuple[str, str, bool]:
        return series.flow, series.metric, series.role in SERVED

    axes: defaultdict[tuple[str, str, bool], list[int]] = defaultdict(list)
    for series, values in ordered.items():
        axes[axis_of(series)] += int(values[0]), int(values[-1])

    def latency(series: Series, values: Values) -> Latency:
        axis = axes[axis_of(series)]
        low, high = min(axis), max(axis)
        shares = tuple(percentile(values, share) for share in SHARES)
        return Latency(*series, len(values), shares, low, high, _histogram(values, low, high))

    def order(series: Series) -> tuple[str, int, int, bool, str]:
        place = METRICS.index(series.metric), ROLES.index(series.role)
        return series.flow, *place, series.stack != "legacy", series.stack

    return tuple(latency(series, ordered[series]) for series in sorted(ordered, key=order))


def percentile(values: Values, share: float) -> Percentile:
    """Return one percentile of sorted values, with its interval."""
    found = percentile_with_interval(values.tolist(), share)
    low, high = (None if end is None else int(end) for end in (found.low, found.high))
    return Percentile(share, int(found.value), low, high)


def _histogram(values: Values, low: int, high: int) -> tuple[int, ...]:
    start, end = math.log(max(1, low)), math.log(max(2, high))
    logs = np.log(np.maximum(1, values))
    counts, _ = np.histogram(logs, bins=BINS, range=(start, max(end, start + 0.01)))
    return tuple(int(count) for count in counts)
