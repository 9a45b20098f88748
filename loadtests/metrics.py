"""The metrics of a streamed request, by name, and over which rows each may be summed up.

| name | seconds from the scheduled (or the sent) moment to |
|---|---|
| ttfb | the response's headers |
| ttfe | the first event of any kind |
| ttft | the first non-empty answer or reasoning |
| ttfo | the first non-empty answer |
| e2el | the last content |
| ttle | the terminal frame |

and, not counted from the start: `icl_max` and `icl_p95`, the longest and the P95 gap between
content events of a request; `itl`, (last content - first content) / (n - 1) over its n content
events (which are frames, not tokens, and TTFT is not in it); `lag`, sent - scheduled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from loadtests.percentiles import percentile
from loadtests.rows import Row

Clock = Literal["scheduled", "sent"]
NANOSECONDS = 1e-9
MICROSECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    `of` gives seconds, None when the request never got there. `whole` metrics are defined for
    complete streams only: the last word of a stream that was cut is not its last word.
    """

    name: str
    title: str
    of: Callable[[Row, Clock], float | None]
    whole: bool = False

    def sample(self, rows: Iterable[Row], clock: Clock = "scheduled") -> list[float]:
        """Values of all rows that have one; whoever uses it says how many had none."""
        values = (self.of(row, clock) for row in rows if self.counts(row))
        return [value for value in values if value is not None]

    def counts(self, row: Row) -> bool:
        """Whether a row may have a value: a refusal is quick, and no answer."""
        if self.whole:
            return row.ending == "complete"
        return row.ending not in ("refused", "unreachable")


def _since(field: str) -> Callable[[Row, Clock], float | None]:
    def seconds(row: Row, clock: Clock) -> float | None:
        reached: int | None = getattr(row, field)
        if reached is None:
            return None
        return (reached + (row.lag if clock == "scheduled" else 0)) * NANOSECONDS

    return seconds


def _longest_gap(row: Row, _: Clock) -> float | None:
    return max(row.gaps) * MICROSECONDS if row.gaps else None


def _gap_p95(row: Row, _: Clock) -> float | None:
    return percentile(sorted(row.gaps), 0.95) * MICROSECONDS if row.gaps else None


def _itl(row: Row, _: Clock) -> float | None:
    if row.first_token is None or row.last_content is None or row.contents <= 1:
        return None
    return (row.last_content - row.first_token) * NANOSECONDS / (row.contents - 1)


def _lag(row: Row, _: Clock) -> float:
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
