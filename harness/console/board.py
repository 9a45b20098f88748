"""The exchanges of this process as the console shows them: the newest, and an hour of figures."""

from __future__ import annotations

import time
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast

import numpy as np

from compare.rows import End, ExchangeRow
from router.exchange import Served

SPAN_SECONDS: Final = 15
SPANS: Final = 240
"""Spans that are kept: an hour."""
RECENT: Final = 20
"""Spans that the figures are of: five minutes."""
NEWEST: Final = 50
"""Exchanges of a flow that are listed."""
STACKS: Final = ("legacy", "graph")

Percentiles = tuple[float | None, float | None]
"""The smallest values, in milliseconds, that half and 95 % do not exceed; none of none."""


@dataclass(slots=True)
class Span:
    """What came of the exchanges of one stack that ended within some seconds."""

    served: Counter[str] = field(default_factory=Counter)
    """By the stack that served them in the end."""
    failed: Counter[str] = field(default_factory=Counter)
    """Failures by code, also those behind which the other stack took over."""
    taken_over: int = 0
    first_ms: array[float] = field(default_factory=lambda: array("d"))
    ended_ms: array[float] = field(default_factory=lambda: array("d"))
    times: tuple[Percentiles, Percentiles] = ((None, None), (None, None))
    """TTFT and E2E, once the span is over."""

    def add(self, row: ExchangeRow) -> None:
        """Count an exchange."""
        self.served[row.served] += 1
        self.taken_over += bool(row.failed_behind)
        if row.failed_behind or row.end == "failed":
            self.failed[row.code] += 1
        if row.first_text_ms is not None:
            self.first_ms.append(row.first_text_ms)
        self.ended_ms.append(row.ended_ms or 0.0)

    def close(self) -> None:
        """Find the percentiles."""
        self.times = percentiles(self.first_ms), percentiles(self.ended_ms)


NONE: Final = Span()


class Board:
    """Takes the exchanges of a process as they end; `clock` returns nanoseconds since 1970."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._newest = defaultdict[str, deque[ExchangeRow]](partial(deque, maxlen=NEWEST))
        self._spans = defaultdict[tuple[str, str], dict[int, Span]](dict)
        """By flow and assigned stack, the oldest first, and by number."""

    @property
    def number(self) -> int:
        """The number of the span that is under way."""
        return self._clock() // (SPAN_SECONDS * 1_000_000_000)

    def newest(self, flow: str) -> Sequence[ExchangeRow]:
        """Return the newest exchanges of a flow, the last one first."""
        return [*reversed(self._newest[flow])]

    def observe(self, exchange: Served) -> None:
        """Take an exchange that has ended."""
        began, first, failed = exchange.began, exchange.first_text, exchange.taken_over
        took = ((exchange.ended or began) - began) * 1e3
        last = failed[0][1] if failed else exchange.outcome
        row = ExchangeRow(
            exchange=exchange.id,
            flow=exchange.flow.name,
            at=round(self._clock() / 1e3 - took * 1e3),
            assigned=exchange.assigned,
            served=exchange.served,
            why=exchange.why,
            end=cast("End", exchange.outcome.__struct_config__.tag),
            code=getattr(last, "code", ""),
            failed_behind=failed[0][0].candidate.name if failed else "",
            first_text_ms=None if first is None else (first - began) * 1e3,
            ended_ms=took,
        )
        self._newest[row.flow].append(row)
        self._span(row.flow, row.assigned).add(row)

    def _span(self, flow: str, assigned: str) -> Span:
        """Return the span under way; those before it are over, and the oldest make room."""
        spans, number = self._spans[flow, assigned], self.number
        if number not in spans:
            if spans:
                spans[max(spans)].close()
            spans[number] = Span()
            for old in [one for one in spans if one <= number - SPANS]:
                del spans[old]
        return spans[number]

    def figures(self, flow: str) -> Mapping[str, Span]:
        """Return the spans of the last five minutes as one, by assigned stack."""
        figures = {stack: Span() for stack in STACKS}
        for stack, total in figures.items():
            for number, span in self._spans[flow, stack].items():
                if number > self.number - RECENT:
                    total.served += span.served
                    total.failed += span.failed
                    total.taken_over += span.taken_over
                    total.first_ms.extend(span.first_ms)
                    total.ended_ms.extend(span.ended_ms)
            total.close()
        return figures

    def chart(self, flow: str) -> Sequence[Sequence[float | None]]:
        """Return the last hour, without the span under way, in columns, as uPlot takes them.

        When each span began, in seconds since 1970; then in milliseconds TTFT of legacy, P50 and
        P95, and of graph, and E2E of both.
        """
        both = [self._spans[flow, stack] for stack in STACKS]
        oldest = min((min(spans) for spans in both if spans), default=0)
        numbers = range(max(self.number - SPANS + 1, oldest), self.number)
        columns: list[list[float | None]] = [[one * SPAN_SECONDS for one in numbers]]
        for spans in both:
            if spans and (last := max(spans)) < self.number:
                spans[last].close()  # no exchange has come since
        for measure in range(2):
            for spans in both:
                drawn = [spans.get(one, NONE).times[measure] for one in numbers]
                columns += [[one[rank] for one in drawn] for rank in range(2)]
        return columns


def percentiles(values: array[float]) -> Percentiles:
    """Return P50 and P95 of some values."""
    if not values:
        return None, None
    p50, p95 = np.quantile(values, (0.5, 0.95), method="inverted_cdf")
    return float(p50), float(p95)
