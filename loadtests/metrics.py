"""Metrics of a request, objectives over them, and goodput."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from contract.errors import CutoverError
from evidence.intervals import percentile
from loadtests.rows import SECOND, LoadRow

METHOD = "inverted_cdf (nearest rank), exact, over raw rows"
INTERVAL = "order statistics (binomial)"
CLOCK = "scheduled"
"""The moment that times are counted from; one that was sent late waited, too."""
NANOSECONDS = 1e-9
MICROSECONDS = 1e-6


GAPS = frozenset({"icl_max", "icl_p95", "itl"})


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    `of` returns seconds, None when the request never got there. `whole` metrics are defined for
    complete streams only: the last word of a stream that was cut is not its last word.
    """

    name: str
    title: str
    of: Callable[[LoadRow], float | None]
    whole: bool = False

    def sample(self, rows: Iterable[LoadRow]) -> list[float]:
        """Return the values of all rows that have one."""
        values = (self.of(row) for row in rows if self.counts(row))
        return [value for value in values if value is not None]

    def counts(self, row: LoadRow) -> bool:
        """Whether a row may have a value: a refusal is quick, and no answer."""
        if not row.measured:
            return False
        if self.whole:
            return row.ending == "complete"
        return row.ending not in ("refused", "unreachable")


def _since(field: str) -> Callable[[LoadRow], float | None]:
    def seconds(row: LoadRow) -> float | None:
        reached: int | None = getattr(row, field)
        return None if reached is None else (reached + row.lag) * NANOSECONDS

    return seconds


def _longest_gap(row: LoadRow) -> float | None:
    return max(row.gaps) * MICROSECONDS if row.gaps else None


def _gap_p95(row: LoadRow) -> float | None:
    return percentile(sorted(row.gaps), 0.95) * MICROSECONDS if row.gaps else None


def _itl(row: LoadRow) -> float | None:
    if row.first_token is None or row.last_content is None or row.contents <= 1:
        return None
    return (row.last_content - row.first_token) * NANOSECONDS / (row.contents - 1)


def _lag(row: LoadRow) -> float:
    return row.lag * NANOSECONDS


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        metric.name: metric
        for metric in (
            Metric("ttfb", "TTFB, response headers", _since("headers")),
            Metric("ttfe", "TTFE, first event", _since("first_event")),
            Metric("ttft", "TTFT, first words", _since("first_token")),
            Metric("ttfo", "TTFO, first answer text", _since("first_text")),
            Metric("icl_max", "ICL, longest gap", _longest_gap, whole=True),
            Metric("icl_p95", "ICL, P95 gap", _gap_p95, whole=True),
            Metric("itl", "ITL, mean gap", _itl, whole=True),
            Metric("e2el", "E2EL, last words", _since("last_content"), whole=True),
            Metric("ttle", "TTLE, terminal frame", _since("terminal"), whole=True),
            Metric("lag", "schedule lag", _lag),
        )
    }
)


class ObjectiveRefused(CutoverError):
    """An objective cannot be read."""

    def __init__(self, text: str) -> None:
        names = ", ".join(METRICS)
        super().__init__(f"an objective is NAME=SECONDS, NAME one of {names}; not {text!r}")


class Objective(msgspec.Struct, frozen=True):
    """A limit on one metric, seconds; at the limit is met."""

    metric: str
    seconds: float

    def met(self, row: LoadRow) -> bool:
        """Whether a request met it; an answer in one piece has no gaps, and so meets any."""
        value = METRICS[self.metric].of(row)
        if value is None:
            return self.metric in GAPS and row.contents == 1
        return value <= self.seconds


DEFAULT_OBJECTIVES = (
    Objective("ttft", 2.0),
    Objective("icl_max", 2.0),
    Objective("ttle", 60.0),
)


def parse_objective(text: str) -> Objective:
    """Read `ttft=1.5`; raises `ObjectiveRefused`."""
    name, _, seconds = text.partition("=")
    try:
        objective = Objective(name.strip(), float(seconds))
    except ValueError as error:
        raise ObjectiveRefused(text) from error
    if objective.metric not in METRICS or not objective.seconds > 0:
        raise ObjectiveRefused(text)
    return objective


class Goodput(msgspec.Struct, frozen=True):
    """How much of the load was served well; `window` in seconds, summed over runs."""

    good: int
    requests: int
    window: float

    @property
    def per_second(self) -> float:
        """Good requests per second."""
        return self.good / self.window if self.window > 0 else 0.0


def window(rows: Sequence[LoadRow]) -> float:
    """Seconds from the first scheduled moment of one run to the end of its last request."""
    if not rows:
        return 0.0
    first = min(row.scheduled for row in rows)
    return (max(row.sent + row.ended for row in rows) - first) / SECOND


def goodput(
    runs: Iterable[Sequence[LoadRow]],
    objectives: Sequence[Objective] = DEFAULT_OBJECTIVES,
) -> Goodput:
    """Count over the runs of one stack; requests the generator cancelled count as requests.

    Those whose client was to leave do not.
    """
    good = requests = 0
    seconds = 0.0
    for every in runs:
        rows = [row for row in every if row.leaves is None]
        requests += len(rows)
        seconds += window(rows)
        good += sum(is_good(row, objectives) for row in rows)
    return Goodput(good, requests, seconds)


def is_good(row: LoadRow, objectives: Sequence[Objective]) -> bool:
    """Whether a request is complete and met every objective."""
    return row.ending == "complete" and all(objective.met(row) for objective in objectives)
