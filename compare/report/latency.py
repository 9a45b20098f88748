"""Latency: exact percentiles with intervals, and a histogram, of every series of times."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from compare.tally import Series

METHOD = "nearest rank (the smallest value that at least that share of the runs does not exceed)"
INTERVAL = "95 % interval from order statistics (exact binomial); – where too few runs bound it"
SHARES = (0.5, 0.95, 0.99)
CONFIDENCE = 0.95
BINS = 48
METRICS = ("first", "text", "end")
ROLES = ("serving", "fallback", "shadow", "replay")


class Percentile(msgspec.Struct, frozen=True):
    """A percentile in microseconds, and the interval it lies in; None: not bounded."""

    share: float
    value: int
    low: int | None
    high: int | None


class Latency(msgspec.Struct, frozen=True):
    """The times of one stack in one role: `first` event (TTFE), first `text` (TTFO), `end`.

    `histogram` counts runs in bins of equal width on a logarithmic axis from `axis_low` to
    `axis_high` microseconds, the same axis for all series of a flow and metric.
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


def latencies(times: Mapping[Series, array[int]]) -> tuple[Latency, ...]:
    """Summarise every series, in the order flow, metric, role, stack (legacy first)."""
    if not times:
        return ()
    columns = ["flow", "stack", "role", "metric"]
    table = pd.DataFrame([tuple(series) for series in times], columns=columns)
    ordered = [np.sort(np.asarray(values, dtype=np.int64)) for values in times.values()]
    table["times"] = pd.Series(ordered, dtype=object)
    grouped = table.groupby(["flow", "metric"])["times"]
    table["low"] = grouped.transform(lambda group: min(values[0] for values in group))
    table["high"] = grouped.transform(lambda group: max(values[-1] for values in group))
    found = [_latency(row) for row in table.to_dict("records")]
    return tuple(sorted(found, key=_order))


def _order(latency: Latency) -> tuple[str, int, int, bool, str]:
    place = METRICS.index(latency.metric), ROLES.index(latency.role)
    return latency.flow, *place, latency.stack != "legacy", latency.stack


def _latency(row: Mapping[Any, Any]) -> Latency:
    values: NDArray[np.int64] = row["times"]
    low, high = int(row["low"]), int(row["high"])
    return Latency(
        row["flow"],
        row["stack"],
        row["role"],
        row["metric"],
        len(values),
        tuple(percentile(values, share) for share in SHARES),
        low,
        high,
        _histogram(values, low, high),
    )


def percentile(values: NDArray[np.int64], share: float) -> Percentile:
    """Give one percentile of sorted values, by nearest rank, with its interval."""
    n = len(values)
    rank = max(1, math.ceil(share * n - 1e-9))
    low, high = _ranks(n, share)
    return Percentile(
        share,
        int(values[rank - 1]),
        int(values[low - 1]) if low >= 1 else None,
        int(values[high - 1]) if high <= n else None,
    )


def _ranks(n: int, share: float) -> tuple[int, int]:
    """Give the ranks between which a percentile lies with `CONFIDENCE`.

    How many of n values lie below the percentile is binomial(n, share); David and Nagaraja,
    Order Statistics, 7.1. Rank 0 or n + 1: not bounded.
    """
    k = np.arange(n)
    steps = np.log((n - k) / (k + 1)) + math.log(share / (1 - share))
    logs = np.concatenate(([0.0], np.cumsum(steps))) + n * math.log(1 - share)
    below = np.cumsum(np.exp(logs))
    outside = (1 - CONFIDENCE) / 2
    low = int(np.searchsorted(below, outside, side="right"))
    high = int(np.searchsorted(below, 1 - outside, side="left")) + 1
    return low, high


def _histogram(values: NDArray[np.int64], low: int, high: int) -> tuple[int, ...]:
    start, end = math.log(max(1, low)), math.log(max(2, high))
    logs = np.log(np.maximum(1, values))
    counts, _ = np.histogram(logs, bins=BINS, range=(start, max(end, start + 0.01)))
    return tuple(int(count) for count in counts)
