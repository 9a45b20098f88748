"""Whatever happens to exchanges: the metrics count what the captures of them hold."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest

from compare.input.outcomes import read_outcomes
from contract.flows.chat import CHAT, ChatRequest
from contract.records import RunRecord
from contract.wire.sse import is_comment
from effects.testing import VirtualLoop
from evidence.outcomes import outcome_of
from router.capture.writer import CaptureWriter
from router.config.schema import CaptureSettings
from router.stack import StackName
from router.telemetry.metrics import ExchangeMetrics, MetricValues
from tests.support.faulty_stacks import after, crash, dawdle, hang, short
from tests.support.outcome_counts import counts_of_totals, counts_on_page, outcome_totals
from tests.support.router_world import House, Rules
from tests.support.tool_replies import ASSIGNED, CASE, FLOWS, priced

FLOW = {"chat": CHAT}
ACTS = {"crash": crash, "hang": hang, "slow": dawdle(1.5)}


class Asked(NamedTuple):
    """One exchange: its stack, what breaks after how many events, when the client leaves.

    A message that is not `known` is refused.
    """

    assigned: StackName
    known: bool
    breaks: str
    events: int
    stand_in: bool
    shadow: bool
    leaves_after: int | None
    broken_tool: bool


asked = st.builds(
    Asked,
    assigned=st.sampled_from(["legacy", "graph"]),
    known=st.sampled_from([True, True, True, False]),
    breaks=st.sampled_from(["", "short", *ACTS]),
    events=st.integers(0, 12),
    stand_in=st.booleans(),
    shadow=st.booleans(),
    leaves_after=st.none() | st.integers(0, 8),
    broken_tool=st.booleans(),
)


async def served(one: Asked, metrics: ExchangeMetrics) -> Sequence[RunRecord]:
    """Serve an exchange; returns what is captured of it."""
    flow = FLOWS[one.assigned]
    if one.breaks == "short":
        flow = short(flow, one.events)
    elif one.breaks:
        flow = after(flow, one.events, ACTS[one.breaks])
    case = replace(CASE, tools={"calc": "42"}) if one.broken_tool else CASE
    rules = Rules(
        assigned=one.assigned,
        stand_in=one.stand_in,
        shadow=100.0 if one.shadow else 0.0,
        observers=[metrics],
    )
    flows: dict[str, Any] = {one.assigned: flow}
    async with House(case, rules, price=priced, **flows) as made:
        body = case.body if one.known else ChatRequest(message_id="unknown")
        await made.ask(body, leaves_after=one.leaves_after, lingers=0.3)
        return made.runs


async def write(folder: str, exchanges: Sequence[Sequence[RunRecord]]) -> None:
    """Write exchanges as the router does."""
    writer = CaptureWriter(CaptureSettings(path=folder), FLOW, salt="s", key=b"key")
    for runs in exchanges:
        writer.put(runs)
    assert await writer.aclose() == 0


@pytest.mark.untraced
@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(asked, min_size=1, max_size=4))
def test_metrics_count_what_captures_hold(drawn: list[Asked]) -> None:
    """Ends, errors, refusals, fallbacks and their time, tools, tokens, money, and every time."""
    values = MetricValues()
    metrics = ExchangeMetrics(values, lambda: frozenset({CASE.options.model_id}))
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        exchanges = [runner.run(served(one, metrics)) for one in drawn]
    with TemporaryDirectory() as folder:
        asyncio.run(write(folder, exchanges))
        offline = outcome_totals(read_outcomes(folder, FLOW))
    assert counts_of_totals(offline) == counts_on_page(generate_latest(values.registry).decode())


@pytest.mark.virtual
@pytest.mark.parametrize("events", range(10))
@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_gaps_are_those_the_client_waited(assigned: StackName, events: int) -> None:
    """Also the one in which the other stack takes over."""
    hanging: dict[str, Any] = {assigned: after(FLOWS[assigned], events, hang)}
    async with House(CASE, Rules(assigned=assigned), **hanging) as made:
        seen = await made.ask()
    found = outcome_of(made.runs, CHAT)
    assert found is not None
    assert found.fallback == ("takeover" if events else "fallback")
    at = [moment for moment, data in seen.frames if not is_comment(data)]
    gaps = [later - earlier for earlier, later in pairwise(at)]
    assert found.longest_gap == pytest.approx(max(gaps) * 1e6, abs=1)
    waited = found.longest_gap or 0
    assert (waited >= found.lost >= 10e6) is (events > 0)
    assert (found.last_frame or 0) - (found.first_frame or 0) == pytest.approx(
        (at[-1] - at[0]) * 1e6, abs=1
    )
