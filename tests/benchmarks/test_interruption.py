"""The benches of interruptions: figures find their streams, rows are whole; none is asserted."""

from __future__ import annotations

import pytest

from benchmarks import interruption
from benchmarks.harness import Effort
from benchmarks.interruption import (
    Stop,
    StopEffects,
    measure,
    measure_stops,
    rows_of,
    stop_rows,
    waited,
)
from benchmarks.shadows.alongside import ShadowLedger, ShadowLine
from loadtests.rows import Ending, LoadRow
from loadtests.simulator import Profile, Record
from tests.support.patience import PATIENCE_S


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
    monkeypatch.setattr(interruption, "STACKS", {"graph": 100.0})
    rows = await measure(Effort(rounds=1))
    assert [row.name for row in rows] == [
        f"disconnect.graph.{name}" for name in ("p95", "p50", "worst")
    ]
    assert all(row.value > 0 for row in rows)


def ended(ending: Ending) -> LoadRow:
    """Make the row of a stream."""
    return LoadRow(
        run=0, stack="s", flow="chat", message_id="m", scheduled=0, sent=0, ended=1, ending=ending
    )


def test_a_stop_blames_nothing_or_its_row_fails() -> None:
    """A failed stream, a takeover, an open breaker, a rescue and a lost shadow: a row each."""
    stop = Stop("router", 12.0, "graph", "replay")
    settled = ShadowLedger(0, (ShadowLine("compared", 1),))
    good = StopEffects([ended("complete")] * 2, 0, 0, 0, settled)
    assert {row.ok for row in stop_rows(stop, good)} == {True, None}
    lost = ShadowLedger(0, (ShadowLine("failed", 1),))
    bad = StopEffects([ended("complete"), ended("error")], 1, 1, 1, lost)
    assert [row.name.rpartition(".")[2] for row in stop_rows(stop, bad) if row.ok is False] == [
        "complete",
        "failed",
        "takeovers",
        "breakers_open",
        "rescues",
        "shadows_lost",
    ]


@pytest.mark.slow
@pytest.mark.sockets
async def test_the_bench_of_stops_gives_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A router with a shadow, for a moment."""
    stop = Stop("router", 0.3, "graph", "tail")
    for name, value in {
        "STOPS": (stop,),
        "STREAMS": 6,
        "ARRIVE_S": 0.1,
        "SPOKEN_S": 0.1,
        "LONG": Profile(rate=20, tokens=120),
        "_OPENED_S": PATIENCE_S,
    }.items():
        monkeypatch.setattr(interruption, name, value)
    rows = await measure_stops(Effort())
    assert {row.name.rpartition(".")[0] for row in rows} == {stop.name}
    assert all("6 streams" in row.how for row in rows)
