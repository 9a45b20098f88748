"""The books on the panel: what the router counts anyway, up to date within a second."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from tempfile import TemporaryFile
from typing import Any, get_args

import pytest

from contract.flows.chat import CHAT
from effects.model import (
    AttemptLine,
    BreakerPolicy,
    ModelEntry,
    ModelRegistry,
    Provider,
    RescueLine,
    RescuePolicy,
    RescuingModel,
    Secret,
)
from effects.stores import PauseTotals
from router.capture.writer import CaptureCounts, Dropped
from router.config.schema import BreakerSettings
from router.telemetry import instruments as i
from router.telemetry.instruments import Instrument, MetricSources
from router.telemetry.metrics import (
    BEAT_SECONDS,
    BEATS_A_COPY,
    BEATS_REMEMBERED,
    MetricValues,
    RouterMetrics,
)
from tests.support.faulty_stacks import after, crash, hang
from tests.support.metrics_page import Labels, shown
from tests.support.router_world import House, Rules
from tests.support.tool_replies import CASE, FLOWS

pytestmark = pytest.mark.virtual

A_COPY = BEAT_SECONDS * BEATS_A_COPY


@dataclass
class Recalled:
    """A memory that has been asked."""

    recalls: Counter[str]
    failures: Counter[str]


class Panel:
    """The metrics of a router; `captures` are counts to be copied."""

    def __init__(self, house: House, sources: dict[str, Any]) -> None:
        self.captures = CaptureCounts()
        self.values = MetricValues()
        known = {"faults": dict, **sources}
        self.metrics = RouterMetrics(
            self.values, MetricSources(house.router, lambda: self.captures, **known)
        )

    def __getitem__(self, instrument: Instrument) -> dict[Labels, float]:
        """Return what is shown for an instrument."""
        return shown(self.values, instrument)


@asynccontextmanager
async def metered(
    rules: Rules | None = None, *, flows: dict[str, Any] | None = None, **sources: Any
) -> AsyncIterator[tuple[House, Panel]]:
    """Make a router with metrics."""
    async with House(CASE, rules or Rules(), **(flows or {})) as made:
        yield made, Panel(made, sources)


async def test_counters_grow_by_what_has_come() -> None:
    """However often they are copied."""
    refused = [0]
    async with metered(Rules(shadow=100), refused=lambda: refused[0]) as (made, panel):
        for turn in (1, 2):
            served = await made.ask(qa="nonsense")
            made.router.feedback(served.exchange, -1, None)
            panel.captures = CaptureCounts(written=10 * turn, dropped={"disk": turn})
            refused[0] = turn
            made.router.shadows.requests["chat", "graph", "completed"] += 1
            panel.metrics.copy()
            panel.metrics.copy()
            [(flow, assigned, score)] = made.router.feedbacks
            assert panel[i.FEEDBACK] == {(flow, assigned, str(score)): turn}
            assert panel[i.LEDGER] == {
                ("chat", "compared", "equal"): turn,
                ("chat", "failed", "harness"): 0,
            }
            assert panel[i.CAPTURES_WRITTEN] == {(): 10 * turn}
            assert panel[i.CAPTURES_DROPPED] == {
                **{(reason,): 0 for reason in get_args(Dropped)},
                ("disk",): turn,
            }
            assert panel[i.SHADOW_REQUESTS] == {("chat", "graph", "completed"): turn}
            assert panel[i.QA_IGNORED] == panel[i.EDITS_REFUSED] == {(): turn}


async def test_gauges_tell_how_it_is_now() -> None:
    """Streams, shadows, the ledger and what the tapes hold."""
    hanging = after(FLOWS["graph"], 3, hang)
    async with metered(Rules(shadow=100), flows={"graph": hanging}) as (made, panel):
        panel.captures = CaptureCounts(waiting=7)
        panel.metrics.copy()
        whole = panel[i.BYTES_LEFT][()]
        assert whole == made.settings.limits.total_bytes
        stream = await made.router.open(CHAT, CASE.body, None)
        await stream.open()
        panel.metrics.copy()
        assert panel[i.OPEN_STREAMS] == {("chat",): 1}
        assert panel[i.UNSETTLED] == {(): 1}
        assert panel[i.CAPTURES_WAITING] == {(): 7}
        assert panel[i.BYTES_LEFT][()] < whole
        assert panel[i.SHADOW_LAG] == {(): 0}
        async for _ in stream.pieces():
            pass
        made.router.close(stream)
        await stream.close()
        await made.client(CASE.body)
        await asyncio.sleep(3.0)
        panel.metrics.copy()
        assert panel[i.OPEN_STREAMS] == {("chat",): 0}
        assert panel[i.SHADOWS_WAITING] == {(): 1}
        assert panel[i.UNSETTLED] == {(): 2}
        assert panel[i.SHADOW_LAG][()] == pytest.approx(5.0, abs=2.5)
    panel.metrics.copy()
    assert panel[i.SHADOWS_WAITING] == panel[i.SHADOW_LAG] == {(): 0}


async def test_the_state_of_a_breaker_is_a_number() -> None:
    """0 closed, 1 probing, 2 open; one that was never needed has no series."""
    async with metered(flows={"legacy": after(FLOWS["legacy"], 0, crash)}) as (made, panel):
        breaker = BreakerSettings(least_requests=1, open_seconds=30.0)
        made.settings = made.settings.model_copy(update={"breaker": breaker})
        for state, seconds in ((2, 0.0), (1, 31.0)):
            await made.ask()
            await asyncio.sleep(seconds)
            panel.metrics.copy()
            assert panel[i.BREAKER]["chat", "legacy"] == state


async def test_what_providers_did_and_whom_breakers_spare() -> None:
    """By model and by what came of it: retries by reason, fallbacks and splices by model."""
    policy = BreakerPolicy(calls=1, rest=60.0)
    model = RescuingModel(ModelRegistry(), RescuePolicy(breaker=policy))
    model.counts.attempts[AttemptLine("m", "here", "m-1", "model_unavailable")] = 2
    model.counts.followed[RescueLine("m", "failed_over", "model_unavailable", "spare")] = 1
    breaker = model.breakers.of(ModelEntry("m", Provider("here", "http://h", Secret("")), "m-1"))
    async with metered(model=model) as (_, panel):
        panel.metrics.copy()
        assert panel[i.ATTEMPTS] == {("m", "here", "model_unavailable"): 2}
        assert panel[i.RESCUES] == {("m", "failed_over", "model_unavailable", "spare"): 1}
        assert panel[i.PROVIDER_BREAKER] == {("here", "m-1"): 0}
        now = asyncio.get_running_loop().time()
        permit = breaker.permit(now)
        assert permit is not None
        breaker.record(permit, "failure", now)
        breaker.permit(now)
        panel.metrics.copy()
        assert panel[i.PROVIDER_BREAKER] == {("here", "m-1"): 2}
        assert panel[i.PROVIDER_REFUSED] == {("here", "m-1"): 1}
        await asyncio.sleep(60.0)
        panel.metrics.copy()
        assert panel[i.PROVIDER_BREAKER] == {("here", "m-1"): 1}


async def test_how_entries_were_recalled() -> None:
    """By vectors or by text, and why there were no vectors."""
    memory = Recalled(Counter(vectors=3), Counter(model_unavailable=1))
    async with metered(memory=memory) as (_, panel):
        panel.metrics.copy()
        assert panel[i.RECALLS] == {("vectors",): 3}
        assert panel[i.EMBEDDING_FAILURES] == {("model_unavailable",): 1}


async def test_what_waits_for_a_human_is_shown_by_flow() -> None:
    """And none where nothing does any more."""
    waiting = {"companion": PauseTotals(2, 9_000), "ops": PauseTotals(0, 0)}
    async with metered(pauses=lambda: waiting) as (_, panel):
        panel.metrics.copy()
        assert panel[i.OPEN_PAUSES] == {("companion",): 2, ("ops",): 0}
        assert panel[i.OPEN_PAUSE_BYTES] == {("companion",): 9_000, ("ops",): 0}


async def test_a_fault_is_one_while_it_lasts() -> None:
    """And nought when it has gone; a part that never failed has no series."""
    faults = {"configuration": "in words that are not counted"}
    async with metered(faults=lambda: faults) as (_, panel):
        for shown_as in (1, 0):
            panel.metrics.copy()
            assert panel[i.FAULTS] == {("configuration",): shown_as}
            faults.clear()


async def test_the_panel_is_kept_up_to_date_and_brought_so_at_the_end() -> None:
    """Also where this worker's page is not read."""
    async with metered() as (_, panel):
        async with panel.metrics.running():
            panel.captures = replace(panel.captures, written=1)
            await asyncio.sleep(A_COPY + BEAT_SECONDS)
            assert panel[i.CAPTURES_WRITTEN] == {(): 1}
            panel.captures = replace(panel.captures, written=2)
        assert panel[i.CAPTURES_WRITTEN] == {(): 2}


async def test_a_late_loop_is_seen_and_remembered_for_a_while() -> None:
    """A stack that blocks holds up every stream of its worker."""
    loop, skipped = asyncio.get_running_loop(), 0.0
    async with metered() as (_, panel), panel.metrics.running(lambda: loop.time() + skipped):
        await asyncio.sleep(A_COPY + 0.01)
        assert panel[i.LOOP_LAG] == {(): pytest.approx(0, abs=1e-6)}
        skipped = 3.0
        await asyncio.sleep(A_COPY)
        assert panel[i.LOOP_LAG] == {(): pytest.approx(3)}
        await asyncio.sleep(BEAT_SECONDS * BEATS_REMEMBERED)
        assert panel[i.LOOP_LAG] == {(): pytest.approx(0, abs=1e-6)}


async def test_the_verdict_of_the_gate_is_one_until_another_comes() -> None:
    """Of a flow's verdicts at most one is 1."""
    verdicts = {"chat": "rollback"}
    async with metered(verdicts=lambda: verdicts) as (_, panel):
        panel.metrics.copy()
        verdicts["chat"] = "hold"
        panel.metrics.copy()
        assert panel[i.GATE_VERDICT] == {("chat", "rollback"): 0, ("chat", "hold"): 1}


async def test_what_the_process_uses_is_shown_beside_its_limits() -> None:
    """One worker; an open file is one more descriptor."""
    async with metered() as (_, panel):
        panel.metrics.copy()
        before = panel[i.DESCRIPTORS][()]
        with TemporaryFile():
            panel.metrics.copy()
            assert panel[i.DESCRIPTORS] == {(): before + 1}
        assert panel[i.DESCRIPTORS][()] < panel[i.DESCRIPTOR_LIMIT][()]
        assert 0 < panel[i.MEMORY][()] < panel[i.MEMORY_LIMIT][()]
        assert panel[i.CPU][()] > 0
        assert panel[i.WORKERS] == {(): 1}
