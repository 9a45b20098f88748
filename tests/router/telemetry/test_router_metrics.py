"""The books on the panel: what the router counts anyway, up to date within a second."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

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
from router.config.schema import BreakerSettings
from router.telemetry import instruments as i
from router.telemetry.instruments import MetricSources
from router.telemetry.metrics import (
    BEAT_SECONDS,
    BEATS_A_COPY,
    BEATS_REMEMBERED,
    MetricValues,
    RouterMetrics,
)
from tests.router.telemetry.standing import Written
from tests.support.faulty_stacks import after, crash, hang
from tests.support.metrics_page import shown
from tests.support.router_world import House, Rules
from tests.support.tool_replies import CASE, FLOWS

pytestmark = pytest.mark.virtual

A_COPY = BEAT_SECONDS * BEATS_A_COPY


@dataclass
class Recalled:
    """A memory that has been asked."""

    recalls: Counter[str]
    failures: Counter[str]


async def test_counters_grow_by_what_has_come() -> None:
    """However often they are copied."""
    panel, written, refused = MetricValues(), Written(), [0]
    async with House(CASE, Rules(shadow=100)) as made:
        books = RouterMetrics(panel, MetricSources(made.router, written, dict, lambda: refused[0]))
        for turn in (1, 2):
            await made.ask(qa="nonsense")
            written.written, written.dropped = 10 * turn, {"disk": turn}
            refused[0] = turn
            books.copy()
            books.copy()
            assert shown(panel, i.LEDGER) == {("chat", "compared", "equal"): turn}
            assert shown(panel, i.QA_IGNORED) == {(): turn}
            assert shown(panel, i.CAPTURES_WRITTEN) == {(): 10 * turn}
            assert shown(panel, i.CAPTURES_DROPPED) == {("disk",): turn}
            assert shown(panel, i.EDITS_REFUSED) == {(): turn}


async def test_gauges_tell_how_it_is_now() -> None:
    """Streams, shadows, the ledger and what the tapes hold."""
    panel = MetricValues()
    hanging = after(FLOWS["graph"], 3, hang)
    async with House(CASE, Rules(shadow=100), graph=hanging) as made:
        books = RouterMetrics(panel, MetricSources(made.router, Written(waiting=7), dict))
        books.copy()
        whole = shown(panel, i.BYTES_LEFT)[()]
        assert whole == made.settings.limits.total_bytes
        stream = await made.router.open(CHAT, CASE.body, None)
        await stream.open()
        books.copy()
        assert shown(panel, i.OPEN_STREAMS) == {("chat",): 1}
        assert shown(panel, i.UNSETTLED) == {(): 1}
        assert shown(panel, i.CAPTURES_WAITING) == {(): 7}
        assert shown(panel, i.BYTES_LEFT)[()] < whole
        assert shown(panel, i.SHADOW_LAG) == {(): 0}
        async for _ in stream.pieces():
            pass
        made.router.close(stream)
        await stream.close()
        await made.client(CASE.body)
        await asyncio.sleep(3.0)
        books.copy()
        assert shown(panel, i.OPEN_STREAMS) == {("chat",): 0}
        assert shown(panel, i.SHADOWS_WAITING) == {(): 1}
        assert shown(panel, i.UNSETTLED) == {(): 2}
        assert shown(panel, i.SHADOW_LAG)[()] == pytest.approx(5.0, abs=2.5)
    books.copy()
    assert shown(panel, i.SHADOWS_WAITING) == shown(panel, i.SHADOW_LAG) == {(): 0}


async def test_the_state_of_a_breaker_is_a_number() -> None:
    """0 closed, 1 probing, 2 open; one that was never needed has no series."""
    panel = MetricValues()
    async with House(CASE, legacy=after(FLOWS["legacy"], 0, crash)) as made:
        breaker = BreakerSettings(least_requests=1, open_seconds=30.0)
        made.settings = made.settings.model_copy(update={"breaker": breaker})
        books = RouterMetrics(panel, MetricSources(made.router, Written(), dict))
        for state, seconds in ((2, 0.0), (1, 31.0)):
            await made.ask()
            await asyncio.sleep(seconds)
            books.copy()
            assert shown(panel, i.BREAKER)["chat", "legacy"] == state


async def test_what_providers_did_and_whom_breakers_spare() -> None:
    """By model and by what came of it: retries by reason, fallbacks and splices by model."""
    panel, policy = MetricValues(), BreakerPolicy(calls=1, rest=60.0)
    model = RescuingModel(ModelRegistry(), RescuePolicy(breaker=policy))
    model.counts.attempts[AttemptLine("m", "here", "m-1", "model_unavailable")] = 2
    model.counts.followed[RescueLine("m", "failed_over", "model_unavailable", "spare")] = 1
    breaker = model.breakers.of(ModelEntry("m", Provider("here", "http://h", Secret("")), "m-1"))
    async with House(CASE) as made:
        books = RouterMetrics(panel, MetricSources(made.router, Written(), dict, model=model))
        books.copy()
        assert shown(panel, i.ATTEMPTS) == {("m", "here", "model_unavailable"): 2}
        followed = ("m", "failed_over", "model_unavailable", "spare")
        assert shown(panel, i.RESCUES) == {followed: 1}
        assert shown(panel, i.PROVIDER_BREAKER) == {("here", "m-1"): 0}
        now = asyncio.get_running_loop().time()
        permit = breaker.permit(now)
        assert permit is not None
        breaker.record(permit, "failure", now)
        breaker.permit(now)
        books.copy()
        assert shown(panel, i.PROVIDER_BREAKER) == {("here", "m-1"): 2}
        assert shown(panel, i.PROVIDER_REFUSED) == {("here", "m-1"): 1}
        await asyncio.sleep(60.0)
        books.copy()
        assert shown(panel, i.PROVIDER_BREAKER) == {("here", "m-1"): 1}


async def test_how_entries_were_recalled() -> None:
    """By vectors or by text, and why there were no vectors."""
    panel, memory = MetricValues(), Recalled(Counter(vectors=3), Counter(model_unavailable=1))
    async with House(CASE) as made:
        RouterMetrics(panel, MetricSources(made.router, Written(), dict, memory=memory)).copy()
        assert shown(panel, i.RECALLS) == {("vectors",): 3}
        assert shown(panel, i.EMBEDDING_FAILURES) == {("model_unavailable",): 1}


async def test_a_fault_is_one_while_it_lasts() -> None:
    """And nought when it has gone; a part that never failed has no series."""
    panel, faults = MetricValues(), {"configuration": "in words that are not counted"}
    async with House(CASE) as made:
        books = RouterMetrics(panel, MetricSources(made.router, Written(), lambda: faults))
        books.copy()
        assert shown(panel, i.FAULTS) == {("configuration",): 1}
        faults.clear()
        books.copy()
        assert shown(panel, i.FAULTS) == {("configuration",): 0}


async def test_the_panel_is_kept_up_to_date_and_brought_so_at_the_end() -> None:
    """Also where this worker's page is not read."""
    panel, written = MetricValues(), Written()
    async with House(CASE) as made:
        books = RouterMetrics(panel, MetricSources(made.router, written, dict))
        async with books.running():
            written.written = 1
            await asyncio.sleep(A_COPY + BEAT_SECONDS)
            assert shown(panel, i.CAPTURES_WRITTEN) == {(): 1}
            written.written = 2
        assert shown(panel, i.CAPTURES_WRITTEN) == {(): 2}


async def test_a_late_loop_is_seen_and_remembered_for_a_while() -> None:
    """A stack that blocks holds up every stream of its worker."""
    panel, skipped = MetricValues(), [0.0]
    loop = asyncio.get_running_loop()
    async with House(CASE) as made:
        books = RouterMetrics(panel, MetricSources(made.router, Written(), dict))
        async with books.running(lambda: loop.time() + skipped[0]):
            await asyncio.sleep(A_COPY + 0.01)
            assert shown(panel, i.LOOP_LAG) == {(): pytest.approx(0, abs=1e-6)}
            skipped[0] = 3.0
            await asyncio.sleep(A_COPY)
            assert shown(panel, i.LOOP_LAG) == {(): pytest.approx(3)}
            await asyncio.sleep(BEAT_SECONDS * BEATS_REMEMBERED)
            assert shown(panel, i.LOOP_LAG) == {(): pytest.approx(0, abs=1e-6)}
