"""Rows and their table: verdicts, digits, and what a person reads."""

from __future__ import annotations

import msgspec
from rich.console import Console

from benchmarks.capacity import rows as capacity_rows
from benchmarks.rows import at_least, at_most, reported, rounded, table, verdict


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
    rounds = {"plain": [8.0, 8.0], "legacy": [2.0, 2.0], "graph": [4.0, 4.0]}
    found = {row.name: row for row in capacity_rows(rounds, same=False, requests=10)}
    assert found["chat.legacy.cpu_per_request"].value == 2.0
    assert (found["chat.legacy.over_plain"].value, found["chat.legacy.over_plain"].ok) == (
        4.0,
        True,
    )
    assert (found["chat.graph.over_plain"].value, found["chat.graph.over_plain"].ok) == (2.0, False)
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
