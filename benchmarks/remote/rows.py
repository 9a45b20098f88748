"""Rows of the bench: ratios beside nginx, what is added, what is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.rows import BenchRow, at_least, at_most, bootstrap, ratio_of_medians, told
from evidence import percentile

PASSED = 0.55
MIRRORED = 0.50
FIRST_P50_MS = 1.0
FIRST_P95_MS = 3.0
ADDED_P95_MS = 10.0
MOST_MB = 400.0
_RATIOS = {
    "remote.pass_over_nginx": ("router", "nginx", PASSED, "captures on, over proxy_buffering off"),
    "remote.shadowed_over_mirror": ("shadowed", "mirror", MIRRORED, "captures on, over mirror"),
}


@dataclass(frozen=True, slots=True)
class Many:
    """Many open streams: event delays in milliseconds, peak memory, exchanges written."""

    streams: int
    events: int
    direct: Sequence[float]
    through: Sequence[float]
    peak_mb: float
    written: int


def throughput_rows(
    rates: Mapping[str, Sequence[float]], requests: int, compared: float
) -> list[BenchRow]:
    """Tell the requests a second of each, and the ratios to nginx where that is installed.

    `compared` is the share of the mirrored requests whose shadow ran to its end, in per cent.
    """
    how = f"64-event streams, one worker each, {requests} requests a round, order drawn"
    rows = [
        told(f"remote.{name}.requests", median(values), "1/s", f"median round; {how}")
        for name, values in rates.items()
    ]
    rows.append(told("remote.shadowed.compared", compared, "%", "ledger of /readyz"))
    for name, (ours, theirs, target, what) in _RATIOS.items():
        if theirs not in rates:
            rows.append(told(name, 0.0, "×", f"nginx is not installed: not measured; {what}"))
            continue
        pairs = list(zip(rates[ours], rates[theirs], strict=True))
        ratio = bootstrap(pairs, ratio_of_medians)
        said = f"{what}; median of the rounds' ratios, 95 % [{ratio.low:.2f}, {ratio.high:.2f}]"
        rows.append(at_least(name, ratio.value, "×", target, f"{said}; {how}"))
    return rows


def first_rows(firsts: Sequence[tuple[float, float]], streams: int) -> list[BenchRow]:
    """Judge what the router adds to the first frame."""
    added = sorted(through - direct for direct, through in firsts)
    how = f"{len(added)} pairs of requests, {streams} streams of 10 events a second open"
    return [
        at_most("remote.added_first.p50", percentile(added, 0.5), "ms", FIRST_P50_MS, how),
        at_most("remote.added_first.p95", percentile(added, 0.95), "ms", FIRST_P95_MS, how),
    ]


def many_rows(many: Many) -> list[BenchRow]:
    """Judge what many open streams cost each event, and what they take."""
    direct, through = (percentile(sorted(one), 0.95) for one in (many.direct, many.through))
    due = many.streams * (many.events - 4)
    lost = due - len(many.through) + many.streams - many.written
    how = (
        f"{many.streams} streams of 10 events a second, {len(many.through)} events; P95 of the "
        f"delay from sending to reading {through:.2f} ms, without a router {direct:.2f} ms"
    )
    return [
        at_most("remote.many.added_p95", through - direct, "ms", ADDED_P95_MS, how),
        at_most("remote.many.memory", many.peak_mb, "MB", MOST_MB, f"peak; {how}"),
        at_most("remote.many.lost", lost, "events, exchanges", 0, f"read and written; {how}"),
    ]
