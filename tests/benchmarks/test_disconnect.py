"""The bench of disconnects: leavings find their calls, rows are whole; no figure is asserted."""

from __future__ import annotations

import pytest

from benchmarks import disconnect
from benchmarks.disconnect import measure, rows_of, waited
from benchmarks.harness import Effort
from loadtests.simulator import Record


def record(model: str, ended: int) -> Record:
    """Make the provider's record of a call that broke off."""
    return Record(0, "", model, stream=True, started_ns=0, ended_ns=ended, end="cancelled")


def test_leavings_are_paired_with_the_calls_of_their_model() -> None:
    """In the order they were made, whatever the others did meanwhile."""
    left = {"a": [1_000_000, 9_000_000], "b": [2_000_000]}
    records = [record("a", 3_000_000), record("b", 2_500_000), record("a", 9_000_000)]
    assert waited(left, records) == [2.0, 0.0, 0.5]


def test_a_call_nobody_left_is_an_error() -> None:
    """Then the figures would be about something else."""
    with pytest.raises(ValueError, match="zip"):
        waited({"a": [1]}, [record("a", 2), record("a", 3)])


def test_rows_are_judged_by_their_p95() -> None:
    """One late cancellation in twenty is forgiven, two are not."""
    assert [row.ok for row in rows_of("legacy", [1.0] * 19 + [500.0])] == [True, None, None]
    assert [row.ok for row in rows_of("legacy", [1.0] * 18 + [500.0] * 2)] == [False, None, None]


@pytest.mark.slow
@pytest.mark.sockets
async def test_the_bench_gives_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows a stack; the one whose run is a task of its own stands for both."""
    monkeypatch.setattr(disconnect, "STACKS", {"graph": 100.0})
    rows = await measure(Effort(rounds=1))
    assert [row.name for row in rows] == [
        f"disconnect.graph.{name}" for name in ("p95", "p50", "worst")
    ]
    assert all(row.value > 0 for row in rows)
