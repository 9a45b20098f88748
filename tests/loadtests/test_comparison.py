"""Two stacks side by side: runs are the observations, nothing is left out in silence."""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np
import pytest

from loadtests.metrics import DEFAULT_OBJECTIVES, METRICS, critical
from loadtests.plan import PlannedRun, interleaved
from loadtests.report import RunRows, compare_pairs, summarise_metric, summarise_stack
from loadtests.rows import LoadRow
from tests.loadtests.streams import MS, row

BOTH = ("legacy", "graph")


def test_pairs_are_mirrored_and_every_run_has_its_number() -> None:
    """A B B A …, whichever begins."""
    runs = interleaved(BOTH, 4, seed=3)
    order = [run.stack for run in runs]
    assert [run.run for run in runs] == list(range(8))
    assert order[2:4] == order[1::-1]
    assert order[6:8] == order[5:3:-1]
    assert {run.stack for run in runs[:2]} == set(BOTH)


def test_both_runs_of_a_pair_share_their_arrivals() -> None:
    """One seed for each pair, another one for the next."""
    runs = interleaved(BOTH, 3, seed=3)
    seeds = [run.seed for run in runs]
    assert seeds[0::2] == seeds[1::2]
    assert len(set(seeds)) == 3


def test_who_begins_is_drawn() -> None:
    """Equal seeds give equal orders, and over seeds each stack begins about half the time."""
    assert interleaved(BOTH, 5, 1) == interleaved(BOTH, 5, 1)
    begins = sum(interleaved(BOTH, 1, seed)[0].stack == "legacy" for seed in range(200))
    assert 70 < begins < 130


def test_one_stack_alone_just_repeats() -> None:
    """A single target has no pair to mirror."""
    assert [run.stack for run in interleaved(("legacy",), 3, 0)] == ["legacy"] * 3


@pytest.mark.parametrize(
    ("freedom", "t"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (30, 2.042)],
)
def test_students_t_is_that_of_the_tables(freedom: int, t: float) -> None:
    """Two-sided 95 %."""
    assert critical(0.95, freedom) == pytest.approx(t, abs=5e-4)
    assert critical(0.0, freedom) == pytest.approx(0.0, abs=1e-12)


def ttft(milliseconds: int, count: int = 20) -> list[LoadRow]:
    """Rows of one run with that TTFT from the scheduled moment (lag 3 ms)."""
    return [row(first_token=(milliseconds - 3) * MS) for _ in range(count)]


def paired_runs(*pairs: tuple[int, int]) -> RunRows:
    """Runs with these TTFTs of legacy and graph, pair by pair."""
    return [
        (PlannedRun(2 * number + side, number, stack, 0), ttft(pair[side]))
        for number, pair in enumerate(pairs)
        for side, stack in enumerate(BOTH)
    ]


def test_the_statistic_is_the_paired_difference_of_log_p95() -> None:
    """By hand with numpy and t(4) = 2.776."""
    pairs = [(100, 110), (120, 130), (90, 100), (100, 105), (110, 125)]
    found = compare_pairs(METRICS["ttft"], BOTH, paired_runs(*pairs))
    logs = [log(graph / legacy) for legacy, graph in pairs]
    reach = 2.7764 * np.std(logs, ddof=1) / sqrt(5)
    assert found.ratio == pytest.approx(exp(np.mean(logs)))
    assert found.low == pytest.approx(exp(np.mean(logs) - reach), rel=1e-4)
    assert found.high == pytest.approx(exp(np.mean(logs) + reach), rel=1e-4)
    assert (found.pairs, found.reason) == (5, "")


def gaps(legacy: int, graph: int) -> RunRows:
    """Make a pair of runs in which each answer paused for that long at most, microseconds."""
    runs = interleaved(BOTH, 1, 0)
    longest = {"legacy": legacy, "graph": graph}
    return [(run, [row(gaps=(0, longest[run.stack]))]) for run in runs]


def test_few_pairs_make_no_statement() -> None:
    """A ratio is shown, with what it lacks."""
    two = compare_pairs(METRICS["ttft"], BOTH, paired_runs((100, 110), (100, 120)))
    one = compare_pairs(METRICS["ttft"], BOTH, paired_runs((100, 110)))
    assert "fewer than 5" in two.reason
    assert (one.low, one.reason) == (None, "one pair has no spread")


def test_no_data_on_one_side_is_no_ratio() -> None:
    """Cannot tell, and why."""
    found = compare_pairs(METRICS["ttft"], BOTH, paired_runs((100, 110))[:1])
    assert found.ratio is None
    assert "no pair" in found.reason


@pytest.mark.parametrize("pair", [(0, 110), (100, 0), (0, 0)])
def test_a_percentile_of_zero_has_no_ratio_and_says_so(pair: tuple[int, int]) -> None:
    """Answers that come in one burst have gaps of nothing: that is no lack of values."""
    found = compare_pairs(METRICS["icl_max"], BOTH, gaps(*pair))
    assert (found.ratio, found.reason) == (None, "a P95 is 0")


def test_what_was_excluded_is_counted_and_weighed() -> None:
    """Two of twenty had no text: P50 stays, P95 is unbounded; cancellations count for neither."""
    rows = [*ttft(100, 18), row(ending="timeout", first_token=None)]
    rows += [row(ending="refused"), row(ending="cancelled", first_token=None)]
    found = summarise_metric(METRICS["ttft"], rows)
    assert (found.n, found.excluded) == (18, 2)
    assert found.with_excluded[0] == pytest.approx(0.1)
    assert found.with_excluded[1:] == (None, None)


def test_a_stack_is_summed_up_with_its_failures_by_kind() -> None:
    """Endings, codes, goodput, and answers that another stack gave."""
    rows = [
        *ttft(100, 2),
        row(ending="error", code="model_error"),
        row(labels={"served": "graph 0badc0de"}),
        row(labels={"served": "legacy 0badc0de"}),
    ]
    found = summarise_stack("legacy", [(PlannedRun(0, 0, "legacy", 0), rows)], DEFAULT_OBJECTIVES)
    assert (found.requests, found.endings) == (5, {"complete": 4, "error": 1})
    assert found.codes == {"error model_error": 1}
    assert (found.served_elsewhere, found.goodput.good) == (1, 4)
    assert [metric.name for metric in found.metrics] == list(METRICS)
