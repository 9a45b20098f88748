"""What a load test says, of rows that are drawn: verdicts, and runs that say nothing."""

import random
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from compare.report.page import render
from loadtests.plan import PlannedRun, interleaved
from loadtests.report import FEWEST, STATUS, LoadReport, Terms, load_report
from loadtests.rows import Generator, Row

TERMS = Terms(flow="chat", seconds=30.0)
Change = Callable[[PlannedRun, int, dict[str, Any]], object]
"""Changes the fields of a row, by its run and its place there."""


def changed(stack: str = "", each: int = 1, times: float = 1.0, **fields: Any) -> Change:
    """Return what changes each n-th row of a stack, or of both."""

    def change(run: PlannedRun, place: int, row: dict[str, Any]) -> None:
        if run.stack.startswith(stack) and place % each == 0:
            row.update(ttft_ms=row["ttft_ms"] * times, ended_ms=row["ended_ms"] * times)
            row.update(fields)

    return change


NOTHING, SLOWER = changed(), changed("graph", times=1.3)
BOTH_FAIL = changed(each=5, ending="failed")
FAST: Change = lambda run, _, row: row.update(ttft_ms=40.0 if run.stack == "graph" else 20.0)  # noqa: E731
NONE_WHOLE = changed("graph", ending="truncated", ttft_ms=None)


def rows(
    plan: Sequence[PlannedRun], change: Change, size: int = 200, **generator: float
) -> Iterator[Row | Generator]:
    """Draw log-normal times for each run, with an effect of its own on each pair."""
    for run in plan:
        chance = random.Random(f"{run.seed}/{run.stack}")
        level = 400 * random.Random(run.pair).lognormvariate(0, 0.1)
        for place in range(size):
            first = level * chance.lognormvariate(0, 0.2)
            fields: dict[str, Any] = {
                "flow": "chat",
                "stack": run.stack,
                "run": run.number,
                "ending": "complete",
                "due": place * 33 / size,
                "sent_ms": 0.5,
                "gap_ms": 90.0,
                "ttft_ms": first,
                "ended_ms": first + 900,
                "assigned": run.stack,
                "served": run.stack,
            }
            change(run, place, fields)
            yield Row(**fields)
        yield Generator(run=run.number, **{"cpu": 0.2, "seconds": 33.5, **generator})


def report(change: Change = NOTHING, *, pairs: int = 6, **drawn: Any) -> LoadReport:
    """Return the report on a plan whose rows are drawn and changed."""
    plan = interleaved(pairs, seed=7)
    return load_report(rows(plan, change, **drawn), plan, TERMS)


@pytest.mark.parametrize(
    ("change", "verdict", "reason"),
    [
        (NOTHING, "within margins", "TTFT P95 of graph is"),
        (SLOWER, "slower", "E2E P95 of graph is 1.30 times legacy's (1.28 to 1.32)"),
        (changed("graph", times=0.7), "within margins", "0.70 times legacy's"),
        (FAST, "within margins", "2.00 times legacy's (2.00 to 2.00); 3.50 is allowed"),
        (changed("graph", 10, ending="truncated"), "fails more", "9.9% of graph's requests"),
        (changed("graph", 10, served="legacy"), "fails more", "taken over"),
        (changed("graph", 10, ending="stopped"), "within margins", "TTFT"),
        (NONE_WHOLE, "fails more", "100.0% of graph's requests"),
    ],
)
def test_the_verdict_names_its_reason(change: Change, verdict: str, reason: str) -> None:
    """On six pairs of 200 requests; 50 ms or 10 % more are allowed."""
    found = report(change)
    assert found.verdict == verdict
    assert reason in " ".join(found.reasons)


def test_what_is_not_clear_is_said_with_what_would_decide() -> None:
    """Pairs that contradict each other do not decide, and their number is not enough."""

    def change(run: PlannedRun, place: int, row: dict[str, Any]) -> None:
        changed("graph", times=1.3 if run.pair % 2 else 0.8)(run, place, row)

    found = report(change)
    assert (found.verdict, STATUS[found.verdict]) == ("cannot tell", 3)
    assert found.reasons[-1].startswith("About ")


@pytest.mark.parametrize(
    ("change", "drawn", "reason"),
    [
        (NOTHING, {"cpu": 0.93}, "the generator used 93% of a CPU"),
        (NOTHING, {"seconds": 12.0}, "it ended before its time"),
        (NOTHING, {"size": 15}, "13 requests are too few"),
        (NOTHING, {"pairs": 2}, "Fewer than 3 pairs of runs are sound."),
        (NOTHING, {"size": 0}, "0 requests are too few"),
        (changed(sent_ms=80.0), {}, "requests went out 80 ms late"),
        (changed(assigned="legacy"), {}, "were assigned to the other stack"),
        (BOTH_FAIL, {}, "both stacks fail"),
    ],
)
def test_runs_that_say_nothing_are_void_by_name(
    change: Change, drawn: dict[str, Any], reason: str
) -> None:
    """No verdict is made of them."""
    found = report(change, **drawn)
    assert found.verdict == "cannot tell"
    assert reason in " ".join(found.reasons)
    assert all(run["ttft_ms"] is None or run["requests"] >= FEWEST for run in found.runs)


def test_a_run_that_is_missing_voids_its_pair() -> None:
    """The other pairs decide."""
    plan = interleaved(6, seed=7)
    found = load_report(rows(plan[:-1], NOTHING), plan, TERMS)
    assert [run["void"][-11:] for run in found.runs if run["void"]] == ["run-011.log"]
    assert found.verdict == "within margins"
    assert [stack["requests"] for stack in found.stacks] == [5 * 181, 5 * 181]


def test_figures_are_exact_and_behind_the_warm_up() -> None:
    """Percentiles are numpy's, over all that was due behind the first three seconds."""
    plan = interleaved(3, seed=7)
    drawn = list(rows(plan, NOTHING))
    found = load_report(drawn, plan, TERMS)
    firsts = [
        one.ttft_ms
        for one in drawn
        if isinstance(one, Row) and one.stack == "graph" and one.due >= TERMS.warm_up
    ]
    figures = found.stacks[1]["figures"]
    assert [one["value"] for one in figures[:3]] == pytest.approx(
        np.percentile(np.array(firsts, dtype=float), [50, 95, 99])
    )
    assert all(one["low"] <= one["value"] for one in figures)
    assert found.stacks[1]["goodput"] == pytest.approx(len(firsts) / 90)


@pytest.mark.slow
def test_equal_stacks_are_never_called_slower() -> None:
    """In 20 drawn tests; nor are they void."""
    verdicts = []
    for seed in range(20):
        plan = interleaved(5, seed)
        verdicts.append(load_report(rows(plan, NOTHING, 150), plan, TERMS).verdict)
    assert {*verdicts} <= {"within margins", "cannot tell"}
    assert verdicts.count("within margins") >= 15


@pytest.mark.parametrize("change", [NOTHING, SLOWER, NONE_WHOLE, BOTH_FAIL])
def test_the_page_holds_the_verdict_and_loads_nothing(change: Change) -> None:
    """Each verdict has a page; hostile text stays text."""
    flow = "<script>alert(1)</script>"
    found = msgspec.structs.replace(report(change), terms=Terms(flow=flow, seconds=30.0))
    page = render("load.html.j2", report=found)
    assert found.verdict in page
    assert flow not in page
    assert "http://" not in page


FIGURES = tomllib.loads(Path(__file__).with_name("figures.toml").read_text("utf-8"))
SWEPT = Terms(flow="chat", seconds=30.0, rates=(1.0, 5.0, 20.0))


def swept(case: dict[str, Any]) -> LoadReport:
    """Return the report on a sweep, with what is broken in it."""

    def change(run: PlannedRun, place: int, row: dict[str, Any]) -> None:
        for one in case.get("broken", ()):
            if one.get("stack", run.stack) == run.stack and run.pair >= one["pair"]:
                row.update({} if place % case.get("each", 10) else one["row"])

    plan = interleaved(3, seed=7)
    return load_report(rows(plan, change), plan, SWEPT)


@pytest.mark.parametrize("case", FIGURES["sweeps"])
def test_a_sweep_says_up_to_which_rate_each_stack_keeps_the_bound(case: dict[str, Any]) -> None:
    """What is not complete is beyond it; a void run says nothing; each has its page."""
    found = swept(case)
    assert case["reason"] in " ".join(found.reasons)
    assert (found.verdict, [one["kept"] for one in found.stacks]) == (case["verdict"], case["kept"])
    chart = render("sweep.html.j2", report=found).partition("</svg>")[0]
    assert chart.count("<circle") == sum(not run["void"] for run in found.runs)
    assert ("▲" in chart) == ("not complete" in " ".join(found.reasons))


@pytest.mark.parametrize("case", FIGURES["rates"])
def test_stacks_are_compared_in_one_unit(case: dict[str, Any]) -> None:
    """Tokens where all streams tell them, else pieces; the page says which."""
    found = report(lambda run, _, row: row.update(case["both"], **case.get(run.stack, {})))
    assert [one["rate"] for one in found.stacks] == case["rates"]
    page = render("load.html.j2", report=found)
    assert f"{case['unit']} a second (P50)" in page
    assert page.count(f">{case['rates'][0]:.1f}<") == len(found.stacks)


@pytest.mark.parametrize("seed", range(5))
def test_pairs_are_interleaved_and_mirrored(seed: int) -> None:
    """A B B A: each pair has both stacks, its requests due at the same moments."""
    plan = interleaved(4, seed)
    order = [run.stack for run in plan]
    assert order[:2] == order[3:1:-1]
    assert order[4:6] == order[7:5:-1]
    assert [run.number for run in plan] == list(range(8))
    for pair in range(4):
        first, second = (run for run in plan if run.pair == pair)
        assert {first.stack, second.stack} == {"legacy", "graph"}
        assert first.seed == second.seed
