"""Rows, their table, and the bench's statistics: known answers, and what holds of any rounds."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.capacity import rows as capacity_rows
from benchmarks.rows import (
    IntervalEstimate,
    at_least,
    at_most,
    bootstrap,
    difference_of_p95,
    ratio_of_medians,
    reported,
    rounded,
    table,
    verdict,
)


def test_targets_are_met_at_the_target() -> None:
    """At most and at least include the number itself; no target, no verdict."""
    assert at_most("a", 2.0, "ms", 2.0, "").ok
    assert not at_most("a", 2.1, "ms", 2.0, "").ok
    assert at_least("a", 4.0, "×", 4.0, "").ok
    assert not at_least("a", 3.9, "×", 4.0, "").ok
    assert reported("a", 1.0, "ms", "").ok is None


def test_no_verdict_is_told_where_one_was_wanted() -> None:
    """A target without a verdict is no pass; a figure without a target needs none."""
    row = at_most("a", 1.0, "ms", 2.0, "")
    assert "cannot tell" in verdict(msgspec.structs.replace(row, ok=None))
    assert verdict(reported("a", 1.0, "ms", "")) == ""


def test_a_verdict_is_of_the_value_before_rounding() -> None:
    """Rounding is for people."""
    row = at_least("a", 3.99996, "×", 4.0, "")
    assert (row.value, row.ok) == (4.0, False)
    assert rounded(0.123456) == 0.1235


def test_capacity_compares_each_stack_with_the_baseline() -> None:
    """Costs are told, ratios judged, and the bytes must be the same."""
    rounds = {"plain": [8.0, 8.0], "legacy": [2.0, 2.0], "graph": [5.0, 5.0]}
    found = {row.name: row for row in capacity_rows(rounds, same=False, requests=10)}
    assert found["chat.legacy.cpu_per_request"].value == 2.0
    legacy, graph = (found[f"chat.{name}.over_plain"] for name in ("legacy", "graph"))
    assert (legacy.value, legacy.ok, graph.value, graph.ok) == (4.0, True, 1.6, False)
    assert not found["chat.same_bytes"].ok


def test_a_table_says_what_was_missed() -> None:
    """Figure, value with unit, target, verdict."""
    console = Console(width=120, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as said:
        console.print(
            table([at_most("slow", 3.0, "ms", 2.0, "by the clock"), reported("n", 1, "", "")])
        )
    text = said.get()
    assert all(word in text for word in ("slow", "3 ms", "2", "NO"))


COSTS = st.floats(0.01, 1_000, allow_nan=False)
ROUNDS = st.lists(st.tuples(COSTS, COSTS), min_size=1, max_size=12)


def test_a_ratio_is_that_of_a_middling_round() -> None:
    """Rounds are paired: a busy one doubles both sides and changes nothing."""
    assert ratio_of_medians([(8.0, 2.0), (16.0, 4.0), (100.0, 1.0)]) == 4.0


def test_p95s_are_compared_round_by_round() -> None:
    """A burst in one round does not decide."""
    calm = ([float(n) for n in range(1, 101)], [n + 2.0 for n in range(1, 101)])
    burst = ([1.0] * 100, [500.0] * 100)
    assert difference_of_p95([calm, calm, burst]) == 2.0


@given(ROUNDS)
def test_an_interval_holds_values_of_rounds(rounds: list[tuple[float, float]]) -> None:
    """Its ends are ratios between the least and the largest round, in order."""
    found = bootstrap(rounds, ratio_of_medians, draws=50)
    ratios = [first / second for first, second in rounds]
    assert min(ratios) <= found.low <= found.high <= max(ratios)


@given(ROUNDS)
def test_the_same_rounds_give_the_same_interval(rounds: list[tuple[float, float]]) -> None:
    """The draws have a fixed seed."""
    draw = [bootstrap(rounds, ratio_of_medians, draws=20) for _ in range(2)]
    assert draw[0] == draw[1]


def test_rounds_that_agree_leave_nothing_open() -> None:
    """The interval is the value."""
    found = bootstrap([(4.0, 1.0)] * 5, ratio_of_medians)
    assert found == IntervalEstimate(4.0, 4.0, 4.0)
    assert str(found) == "4 [4, 4]"
