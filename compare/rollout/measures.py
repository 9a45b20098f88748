"""The figures of a rollout: graph's beside legacy's, and whether they are no worse."""

import math
from collections.abc import Sequence
from typing import Final, Literal

import msgspec
import numpy as np
import pandas as pd

from compare.rollout import statistics
from compare.rollout.statistics import Bools, Codes, Interval, Sample

Kind = Literal["rate", "P95"]
State = Literal["within", "open", "worse"]

RELATIVE_MARGIN: Final = 0.1
"""How much worse than legacy's a figure of graph may be, of legacy's."""
LEAST_MARGIN: Final[dict[Kind, float]] = {"rate": 0.005, "P95": 50.0}
"""What counts as no worse in any case: half a percentage point, 50 ms."""


class Measure(msgspec.Struct, frozen=True):
    """A figure of both stacks; `low` and `high` limit by how much graph's is the greater one.

    Rates are of 0 to 1, percentiles in milliseconds; a limit is None where exchanges are too few
    for one. `within`: the upper limit is below the margin; `worse`: the lower one is above it;
    `open`: neither, and then `growth` is how many times as many exchanges would bring the upper
    limit to the margin. `left_out` are exchanges that have no such figure.
    """

    name: str
    kind: Kind
    legacy: float | None
    graph: float | None
    low: float | None
    high: float | None
    margin: float
    state: State
    growth: float
    left_out: int

    @property
    def difference(self) -> float | None:
        """By how much graph's figure is the greater one."""
        return None if self.graph is None or self.legacy is None else self.graph - self.legacy

    def figure(self, value: float | None) -> str:
        """Return a value with its unit."""
        if value is None:
            return "unknown"
        return f"{value:.2%}" if self.kind == "rate" else f"{value:.0f} ms"

    def __str__(self) -> str:
        """The measure in one line."""
        legacy, graph, more, high, margin = map(
            self.figure, (self.legacy, self.graph, self.difference, self.high, self.margin)
        )
        return (
            f"{self.name}: legacy {legacy}, graph {graph} ({more} more, limit {high}, "
            f"margin {margin})"
        )


def measures(rows: pd.DataFrame, failed: Bools, graph: Bools, units: Codes) -> tuple[Measure, ...]:
    """Return the measures of exchanges (`compare.rows.ExchangeRow`), those of `graph` marked."""
    left, ended = rows["end"] == "left", rows["end"].isin(["completed", "paused"])
    ended_ms = rows["ended_ms"].astype(float)
    # A client that leaves before the first text has waited for so long at least.
    first_ms = rows["first_text_ms"].astype(float).fillna(ended_ms.where(left))
    # Times alone are of who stayed and got a text: a graph that hangs, or says nothing, is fast.
    unanswered = left | (rows["first_text_ms"].isna() & (rows["end"] == "completed"))
    columns: dict[tuple[str, Kind], pd.Series[float]] = {
        ("failed", "rate"): pd.Series(failed, rows.index).astype(float),
        ("refused", "rate"): (rows["end"] == "refused").astype(float),
        ("unanswered", "rate"): unanswered.astype(float),
        ("first text P95", "P95"): first_ms,
        ("end P95", "P95"): ended_ms.where(ended),
    }
    if rows["score"].notna().any():  # per exchange: who is served worse also says so more often
        columns["disliked", "rate"] = (rows["score"] == -1).astype(float)
    return tuple(
        _measure(*key, np.asarray(column, np.float64), graph, units)
        for key, column in columns.items()
    )


def _measure(
    name: str, kind: Kind, values: statistics.Floats, graph: Bools, units: Codes
) -> Measure:
    known = ~np.isnan(values)
    arms = [Sample(values[mask & known], units[mask & known]) for mask in (~graph, graph)]
    legacy, new = map(statistics.rate if kind == "rate" else statistics.percentile, arms)
    more = statistics.difference(legacy, new)
    margin = max(LEAST_MARGIN[kind], RELATIVE_MARGIN * legacy.estimate)  # not NaN
    below: State = "worse" if more.low > margin else "open"
    return Measure(
        name=name,
        kind=kind,
        legacy=_finite(legacy.estimate),
        graph=_finite(new.estimate),
        low=_finite(more.low),
        high=_finite(more.high),
        margin=margin,
        state="within" if more.high <= margin else below,
        growth=_growth(more, margin, arms if kind == "rate" else None),
        left_out=int((~known).sum()),
    )


def _growth(more: Interval, margin: float, rates: Sequence[Sample] | None) -> float:
    """Return how many times as many exchanges bring a limit to its margin.

    It approaches the difference with the root of their number: from where it is, or, for rates,
    from where the normal distribution has it at the rate of both. A difference beyond the margin,
    which may be by chance, needs as many again.
    """
    if not more.high < math.inf or more.estimate >= margin:
        return 2.0
    distance = more.high - more.estimate
    if rates is not None:
        pooled = float(np.concatenate([one.data for one in rates]).mean())
        sizes = [statistics.independent(one)[0] for one in rates]
        distance = statistics.Z * math.sqrt(pooled * (1 - pooled) * sum(1 / one for one in sizes))
    return max((distance / (margin - max(more.estimate, 0.0))) ** 2, 1.1)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
