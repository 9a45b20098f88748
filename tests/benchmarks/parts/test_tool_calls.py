"""The bench of tool calls: both ways answer, and the ratio has its target."""

from __future__ import annotations

import pytest

from benchmarks.parts import tool_calls

pytestmark = [
    pytest.mark.sockets,
    pytest.mark.slow,
    pytest.mark.untraced,
    pytest.mark.usefixtures("no_event_watcher"),
]


async def test_the_rows_are_measured_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few calls; the figures themselves are the bench's."""
    monkeypatch.setattr(tool_calls, "ROUNDS", 1)
    ratio, gateway, bare = await tool_calls.measure(2)
    assert (ratio.name, ratio.target) == ("tool_call.ratio", 1.3)
    assert gateway.value > 0
    assert bare.value > 0
