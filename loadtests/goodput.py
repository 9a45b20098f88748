"""Goodput: complete requests that also met every objective, per second."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from contract.errors import CutoverError
from loadtests.metrics import METRICS, Clock
from loadtests.rows import Row

SECOND = 1_000_000_000
GAPS = frozenset({"icl_max", "icl_p95", "itl"})


class ObjectiveRefused(CutoverError):
    """An objective cannot be read."""

    def __init__(self, text: str) -> None:
        names = ", ".join(METRICS)
        super().__init__(f"an objective is NAME=SECONDS, NAME one of {names}; not {text!r}")


class Objective(msgspec.Struct, frozen=True):
    """A limit on one metric, seconds; at the limit is met."""

    metric: str
    seconds: float

    def met(self, row: Row, clock: Clock) -> bool:
        """Whether a request met it; an answer in one piece has no gaps, and so meets any."""
        value = METRICS[self.metric].of(row, clock)
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


def window(rows: Sequence[Row]) -> float:
    """Seconds from the first scheduled moment of one run to the end of its last request."""
    if not rows:
        return 0.0
    first = min(row.scheduled for row in rows)
    return (max(row.sent + row.ended for row in rows) - first) / SECOND


def goodput(
    runs: Iterable[Sequence[Row]],
    objectives: Sequence[Objective] = DEFAULT_OBJECTIVES,
    clock: Clock = "scheduled",
) -> Goodput:
    """Count over the runs of one stack; requests the generator gave up itself count as asked."""
    good = requests = 0
    seconds = 0.0
    for rows in runs:
        requests += len(rows)
        seconds += window(rows)
        good += sum(is_good(row, objectives, clock) for row in rows)
    return Goodput(good, requests, seconds)


def is_good(row: Row, objectives: Sequence[Objective], clock: Clock = "scheduled") -> bool:
    """Whether a request is complete and met every objective."""
    return row.ending == "complete" and all(objective.met(row, clock) for objective in objectives)
