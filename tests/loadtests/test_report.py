"""A report says what its figures rest on, and what may not be concluded; its page draws them."""

from __future__ import annotations

from html.parser import HTMLParser
from math import exp, log, sqrt
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from loadtests.metrics import DEFAULT_OBJECTIVES, METRICS, parse_objective
from loadtests.page import page
from loadtests.plan import LoadPlan, PlannedRun, PlanRefused, interleaved
from loadtests.report import (
    FinishedRun,
    LoadReport,
    RunRows,
    compare_failures,
    compare_goodput,
    compare_pairs,
    excluded_cell,
    load_report,
    milliseconds,
    paired_cell,
    stack_line,
    summarise_metric,
    summarise_stack,
    void_lines,
)
from loadtests.requests import Target
from loadtests.rows import GeneratorLoad, LoadRow
from tests.loadtests.streams import MS, SENT, row

TARGETS = tuple(
    Target(stack=stack, url="http://127.0.0.1:1", headers=(("x-key", "hunter2"),), qa_key="hunter3")
    for stack in ("legacy", "graph")
)
PLAN = LoadPlan(targets=TARGETS, messages=Path("messages.jsonl"))
CALM = GeneratorLoad(cpu=1.0, wall=10.0)


def finished(
    run: int,
    rows: list[LoadRow],
    generator: GeneratorLoad = CALM,
    machine: float | None = 0.5,
) -> FinishedRun:
    """One run, legacy when its number is even, of pair `run // 2`."""
    stack = ("legacy", "graph")[run % 2]
    own = [msgspec.structs.replace(one, run=run, stack=stack) for one in rows]
    return FinishedRun(PlannedRun(run, run // 2, stack, 0), own, [generator], machine)


def report(*runs: FinishedRun) -> LoadReport:
    """Report of these runs."""
    return load_report(PLAN, runs, 0.0)


def test_runs_that_are_in_order_count() -> None:
    """Both stacks summed up, every metric compared but the generator's own."""
    found = report(*(finished(run, [row()] * 20) for run in range(4)))
    assert (found.basis, found.void) == ("valid", ())
    assert found.counted == {0, 1, 2, 3}
    assert [stack.requests for stack in found.stacks] == [40, 40]
    assert len(found.paired) == 9 * 3 + 2
    assert found.paired[0].value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (finished(2, [row(sent=SENT + 60 * MS)]), "late at P99"),
        (finished(2, [row()], GeneratorLoad(9.0, 10.0)), "90% of a CPU"),
        (finished(2, [row()], machine=0.99), "99% busy"),
        (finished(2, []), "no request"),
        (finished(2, [row(ending="unreachable")]), "no server answers there"),
    ],
)
def test_a_disturbed_run_is_void(bad: FinishedRun, why: str) -> None:
    """Late, busy, empty, or at an address without a server: its rows are in no sum."""
    found = report(finished(0, [row()]), finished(1, [row()]), bad, finished(3, [row()]))
    (void,) = found.void
    assert why in void.void[0]
    assert found.counted == {0, 1, 3}
    assert [stack.requests for stack in found.stacks] == [1, 2]
    assert found.paired[0].pairs == 1


def test_without_a_valid_run_nothing_is_compared() -> None:
    """The figures are there to look at, marked, and no ratio is."""
    found = report(finished(0, [row()]), finished(1, [row()], machine=1.0))
    assert (found.basis, found.paired) == ("void", ())
    assert [stack.requests for stack in found.stacks] == [1, 1]
    assert "not to conclude from" in void_lines(found)[-1]


def test_a_report_holds_no_secret() -> None:
    """Neither as JSON nor as a page."""
    found = report(finished(0, [row()]), finished(1, [row()]))
    assert b"hunter" not in msgspec.json.encode(found)
    assert "hunter" not in page(found, [])


class Outline(HTMLParser):
    """Notes what a page would load or run, and its unclosed elements."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One start tag."""
        if tag in ("script", "link", "img", "iframe") or "src" in dict(attrs):
            self.loads.append(tag)
        if tag not in ("meta", "path", "line", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One element without content."""

    def handle_endtag(self, tag: str) -> None:
        """One end tag."""
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing() -> None:
    """Well-formed, self-contained, dark too; names are escaped; a failure shows in the curve."""
    runs = [finished(run, [row(), row(ending="timeout", first_token=None)]) for run in range(4)]
    found = msgspec.structs.replace(report(*runs), flow="<chat>")
    text = page(found, [one for run in runs for one in run.rows])
    outline = Outline()
    outline.feed(text)
    assert (outline.open, outline.loads) == ([], [])
    assert "prefers-color-scheme: dark" in text
    assert "&lt;chat&gt;" in text
    assert "<chat>" not in text
    assert text.count('<figure class="plot">') == 10


def test_cells_say_what_is_missing() -> None:
    """Excluded requests, reasons and failures by kind are in the words themselves."""
    rows = [row()] * 30 + [row(ending="timeout", first_token=None), row(ending="cancelled")]
    found = report(finished(0, rows), finished(1, [row()]))
    legacy = found.stacks[0]
    assert stack_line(legacy).startswith(
        "32 requests, 1 failed (1 timeout), 1 given up by the generator; "
    )
    ttft = next(metric for metric in legacy.metrics if metric.name == "ttft")
    assert excluded_cell(ttft) == "1 (P95 at worst 103)"
    assert "one pair has no spread" in paired_cell(found.paired[0])
    assert paired_cell(None) == ""
    assert (milliseconds(0.0123), milliseconds(1.5), milliseconds(None)) == ("12.3", "1500", "?")


def test_answers_without_words_are_counted_apart() -> None:
    """A question to the user is complete, has no TTFT, and is good where none is asked for."""
    question = row(first_token=None, first_text=None, last_content=None, contents=0, gaps=())
    found = report(finished(0, [row(), question]), finished(1, [row()]))
    assert stack_line(found.stacks[0]).startswith("2 requests, 0 failed, 1 complete without words;")
    assert stack_line(found.stacks[1]) == "1 requests, 0 failed; 3.18 good requests/s (1 of 1)"
    assert found.stacks[0].goodput.good == 1
    asked = tuple(map(parse_objective, ("ttfe=2", "ttle=60")))
    plan = msgspec.structs.replace(PLAN, objectives=asked)
    again = load_report(plan, [finished(0, [question]), finished(1, [row()])], 0.0)
    assert again.stacks[0].goodput.good == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"targets": ()},
        {"targets": (TARGETS[0], TARGETS[0])},
        {"users": 0},
        {"seconds": 0.5},
        {"pairs": 0},
        {"rate": 0.0, "engine": "open"},
        {"rate": 20.0},
        {"arrivals": "constant"},
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(changed: dict[str, Any]) -> None:
    """When it is made, with the setting's name."""
    with pytest.raises(PlanRefused, match=next(iter(changed))):
        LoadPlan(**{"targets": TARGETS, "messages": Path("m"), **changed})


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
    assert found.value == pytest.approx(exp(np.mean(logs)))
    assert found.low == pytest.approx(exp(np.mean(logs) - reach), rel=1e-4)
    assert found.high == pytest.approx(exp(np.mean(logs) + reach), rel=1e-4)
    assert (found.pairs, found.reason) == (5, "")


def failing(*pairs: tuple[int, int]) -> RunRows:
    """Runs of ten requests of legacy and graph with so many failures, pair by pair."""
    return [
        (
            PlannedRun(2 * number + side, number, stack, 0),
            [
                row(stack=stack, ending="error" if each < pair[side] else "complete")
                for each in range(10)
            ],
        )
        for number, pair in enumerate(pairs)
        for side, stack in enumerate(BOTH)
    ]


def test_every_percentile_is_compared() -> None:
    """P50 and P99 of runs whose half is equal, and whose slowest request is not."""
    runs: RunRows = [
        (
            PlannedRun(2 * pair + side, pair, stack, 0),
            [*ttft(100 + pair, 60), *ttft((200, 300 + pair)[side], 40)],
        )
        for pair in range(5)
        for side, stack in enumerate(BOTH)
    ]
    found = {p: compare_pairs(METRICS["ttft"], BOTH, runs, p) for p in (0.5, 0.95, 0.99)}
    assert [one.figure for one in found.values()] == ["p50", "p95", "p99"]
    assert found[0.5].value == pytest.approx(1.0)
    assert found[0.99].value == pytest.approx(exp(np.mean([log(1.5 + n / 200) for n in range(5)])))
    assert found[0.99].p is not None
    assert found[0.99].p < 0.001


def test_failures_are_compared_in_points_by_pairs_and_requests() -> None:
    """The mean difference; an interval of no failures still has the width of so few requests."""
    found = compare_failures(BOTH, failing((0, 2), (1, 2), (0, 3), (0, 2), (1, 4)))
    assert found.value == pytest.approx(0.22)
    assert (found.pairs, found.figure) == (5, "share")
    assert found.p is not None
    assert found.p < 0.01
    none = compare_failures(BOTH, failing(*[(0, 0)] * 5))
    assert (none.value, none.p) == (0.0, 1.0)
    assert none.high is not None
    assert none.high > 0.05
    one = compare_failures(BOTH, failing((0, 1)))
    assert (one.value, one.reason) == (None, "fewer than two pairs have requests")


def test_an_answer_of_another_stack_is_a_failure_of_the_one_requested() -> None:
    """A router that takes over hides the failure from the client, not from the comparison."""
    runs = failing(*[(0, 0)] * 5)
    taken = [
        (run, [msgspec.structs.replace(one, labels={"served": "legacy l1"}) for one in rows])
        for run, rows in runs
    ]
    assert compare_failures(BOTH, taken).value == 1.0
    legacy = summarise_stack("legacy", taken, DEFAULT_OBJECTIVES)
    graph = summarise_stack("graph", taken, DEFAULT_OBJECTIVES)
    assert (legacy.code, graph.code) == (("l1",), ())


def test_goodput_is_compared_where_a_run_has_none() -> None:
    """A pair is not left out because graph answered nothing in it."""
    found = compare_goodput(BOTH, failing((0, 5), (0, 10), (0, 5), (0, 0), (0, 5)), ())
    assert found.value == pytest.approx(0.5)
    assert (found.pairs, found.reason) == (5, "")
    nothing = compare_goodput(BOTH, failing(*[(10, 0)] * 5), ())
    assert (nothing.value, nothing.reason) == (None, "legacy has no good request")


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
    assert found.value is None
    assert "no pair" in found.reason


@pytest.mark.parametrize("pair", [(0, 110), (100, 0), (0, 0)])
def test_a_percentile_of_zero_has_no_ratio_and_says_so(pair: tuple[int, int]) -> None:
    """Answers that come in one burst have gaps of nothing: that is no lack of values."""
    found = compare_pairs(METRICS["icl_max"], BOTH, gaps(*pair))
    assert (found.value, found.reason) == (None, "a P95 is 0")


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
