"""What the bench of outcomes measures is what it says."""

from __future__ import annotations

from benchmarks.parts.compare import runs_of
from benchmarks.parts.outcomes import measure
from contract.flows.chat import CHAT
from evidence.outcomes import outcome_of


def test_it_counts_a_whole_exchange() -> None:
    """Its frames and its tools."""
    found = outcome_of(runs_of(0)[:1], CHAT)
    assert found is not None
    assert (found.end, found.tool_calls) == ("completed", 2)
    assert found.longest_gap
    row = measure(1)
    assert (row.name, row.unit) == ("outcomes.live", "µs")
