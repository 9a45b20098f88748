"""A report says what its figures rest on, and what may not be concluded."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from loadtests.metrics import parse_objective
from loadtests.page import Curve, distribution, page
from loadtests.plan import LoadPlan, PlannedRun, PlanRefused
from loadtests.report import (
    FinishedRun,
    LoadReport,
    excluded_cell,
    load_report,
    milliseconds,
    paired_cell,
    stack_line,
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
    return load_report(PLAN, runs)


def test_runs_that_are_in_order_count() -> None:
    """Both stacks summed up, every metric compared but the generator's own."""
    found = report(*(finished(run, [row()] * 20) for run in range(4)))
    assert (found.basis, found.void) == ("valid", ())
    assert found.counted == {0, 1, 2, 3}
    assert [stack.requests for stack in found.stacks] == [40, 40]
    assert len(found.paired) == 9
    assert found.paired[0].ratio == pytest.approx(1.0)


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
        if tag in ("script", "link", "img", "iframe") or {"src", "href"} & dict(attrs).keys():
            self.loads.append(tag)
        if tag not in ("meta", "path"):
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
    assert text.count("<svg") == 3


def test_a_curve_stays_below_what_never_came() -> None:
    """Half of the requests have no value: the curve ends half way up."""
    drawn = distribution("TTFT", {"legacy": Curve([0.1, 0.2], 4)})
    heights = [float(y) for y in re.findall(r"V([\d.]+)", drawn)]
    assert min(heights) == pytest.approx(12 + (260 - 12 - 34) / 2, abs=0.1)


def test_no_values_are_no_curve() -> None:
    """Said in words."""
    assert "no values" in distribution("TTFT", {"legacy": Curve([], 3)})


def test_many_values_make_few_points() -> None:
    """A page of a long run stays small, and still ends where the values end."""
    drawn = distribution("TTFT", {"legacy": Curve([n / 1e5 for n in range(100_000)], 100_000)})
    assert len(drawn) < 20_000


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
    again = load_report(plan, [finished(0, [question]), finished(1, [row()])])
    assert again.stacks[0].goodput.good == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"targets": ()},
        {"targets": (TARGETS[0], TARGETS[0])},
        {"users": 0},
        {"seconds": 0.5},
        {"pairs": 0},
        {"rate": 0.0},
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(changed: dict[str, object]) -> None:
    """When it is made, with the setting's name."""
    with pytest.raises(PlanRefused, match=next(iter(changed))):
        LoadPlan(**{"targets": TARGETS, "messages": Path("m"), **changed})  # type: ignore[arg-type]
