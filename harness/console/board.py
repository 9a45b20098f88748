"""The exchanges of this process as the console shows them: the newest, and an hour of figures."""

from __future__ import annotations

import time
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from cutover.errors import Failed
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


class Line(NamedTuple):
    """An exchange in the list; `at` is when it ended, in nanoseconds since 1970.

    `code` says why it failed, or why another stack took over.
    """

    exchange: str
    at: int
    assigned: str
    served: str
    end: str
    code: str
    taken_over: bool
    first_ms: float | None
    ended_ms: float


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

    def add(self, line: Line) -> None:
        """Count an exchange."""
        self.served[line.served] += 1
        self.taken_over += line.taken_over
        if line.code:
            self.failed[line.code] += 1
        if line.first_ms is not None:
            self.first_ms.append(line.first_ms)
        self.ended_ms.append(line.ended_ms)

    def close(self) -> None:
        """Find the percentiles."""
        self.times = percentiles(self.first_ms), percentiles(self.ended_ms)


class Board:
    """Takes the exchanges of a process as they end; `clock` returns nanoseconds since 1970."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._newest = defaultdict[str, deque[Line]](partial(deque, maxlen=NEWEST))
        self._spans = defaultdict[tuple[str, str], dict[int, Span]](dict)
        """By flow and assigned stack, the oldest first, and by number."""

    @property
    def number(self) -> int:
        """The number of the span that is under way."""
        return self._clock() // (SPAN_SECONDS * 1_000_000_000)

    def newest(self, flow: str) -> Sequence[Line]:
        """Return the newest exchanges of a flow, the last one first."""
        return [*reversed(self._newest[flow])]

    def observe(self, exchange: Served) -> None:
        """Take an exchange that has ended."""
        first, outcome = exchange.first_text, exchange.outcome
        codes = [why.code for _, why in exchange.taken_over]
        codes += [outcome.code] if isinstance(outcome, Failed) else []
        line = Line(
            exchange.id,
            self._clock(),
            exchange.assigned,
            exchange.served,
            type(outcome).__name__.lower(),
            ", ".join(codes),
            bool(exchange.taken_over),
            None if first is None else (first - exchange.began) * 1e3,
            ((exchange.ended or exchange.began) - exchange.began) * 1e3,
        )
        self._newest[exchange.flow.name].append(line)
        self._span(exchange.flow.name, exchange.assigned).add(line)

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
        kept = [one for stack in STACKS for one in self._spans[flow, stack]]
        none, numbers = (
            Span(),
            range(max(self.number - SPANS + 1, min(kept, default=0)), self.number),
        )
        columns: list[list[float | None]] = [[one * SPAN_SECONDS for one in numbers]]
        for measure in range(2):
            for stack in STACKS:
                spans = self._spans[flow, stack]
                drawn = [spans.get(one, none).times[measure] for one in numbers]
                columns += [[one[rank] for one in drawn] for rank in range(2)]
        return columns


def percentiles(values: array[float]) -> Percentiles:
    """Return P50 and P95 of some values."""
    if not values:
        return None, None
    p50, p95 = np.quantile(values, (0.5, 0.95), method="inverted_cdf")
    return float(p50), float(p95)
