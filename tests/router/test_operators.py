"""What operators see of a process: metrics, health, its status."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from harness import root
from harness.config import parse
from harness.live import LiveSettings
from loadtests.simulator import Answer
from router.telemetry.metrics import METRICS
from tests.support.client import Client
from tests.support.stage import Stage, staged

pytestmark = pytest.mark.virtual

CHAT = {"message_id": "m", "content": "What is 12 * 7?"}
GRAPH = {"enable_langgraph": True, "langgraph_percent": 100.0}


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A stage of its own."""
    async with staged(chunk_ms=100) as opened:
        yield opened


def application(stage: Stage, *, crash_after: int = 0, **tables: Any) -> FastAPI:
    """Return the application over a stage's world."""
    live = LiveSettings(parse({"flows": {"chat": {}}} | tables))
    return root.application(live, stage.world, crash_after=crash_after)


async def get(app: FastAPI, path: str, **headers: str) -> tuple[int, bytes]:
    """Get a page; return its status and its body."""
    client = Client(app, sends=headers)
    body = await client.post(path, b"", method="GET")
    return client.status, body


async def scraped(app: FastAPI) -> Callable[..., float]:
    """Return what reads a sample of `/metrics`, once an exchange has been counted."""
    page = b""
    while b"cutover_exchange_seconds_count" not in page:
        await asyncio.sleep(0.001)
        _, page = await get(app, "/metrics")
    families = text_string_to_metric_families(page.decode())
    samples = [one for family in families for one in family.samples]

    def value(name: str, **labels: str) -> float:
        [found] = [one.value for one in samples if (one.name, one.labels) == (name, labels)]
        return found

    return value


async def test_an_exchange_is_counted_with_its_times_and_tokens(stage: Stage) -> None:
    """By flow, assigned and served stack, and outcome."""
    app = application(stage, flows={"chat": GRAPH})
    await Client(app).post("/chat/sse", CHAT)
    value = await scraped(app)
    labels = {"flow": "chat", "assigned": "graph", "served": "graph", "outcome": "completed"}
    assert value("cutover_exchange_seconds_count", **labels) == 1
    first = value("cutover_ttft_seconds_sum", **labels)
    assert 0 < first < value("cutover_exchange_seconds_sum", **labels)
    model = {"flow": "chat", "served": "graph", "model": "gpt-4.1"}
    assert value("cutover_tokens_total", **model, kind="input") > 1
    assert value("cutover_tokens_total", **model, kind="output") > 1
    assert value("cutover_graph_percent", flow="chat") == 100.0


async def test_a_takeover_names_who_failed_and_why(stage: Stage) -> None:
    """The exchange itself has completed."""
    app = application(stage, flows={"chat": GRAPH}, crash_after=2)
    await Client(app).post("/chat/sse", CHAT)
    value = await scraped(app)
    labels = {"flow": "chat", "assigned": "graph", "served": "legacy", "outcome": "completed"}
    assert value("cutover_exchange_seconds_count", **labels) == 1
    why = {"stack": "graph", "blame": "stack", "code": "stack_failed"}
    assert value("cutover_takeovers_total", flow="chat", **why) == 1


async def test_a_failure_names_its_blame(stage: Stage) -> None:
    """A provider's outage is the world's."""
    stage.sim.on(lambda _: True, Answer(status=503))
    app = application(stage)
    await Client(app).post("/chat/sse", CHAT)
    value = await scraped(app)
    why = {"blame": "world", "code": "model_unavailable"}
    assert value("cutover_failures_total", flow="chat", assigned="legacy", **why) == 1


async def test_what_others_name_cannot_fill_the_metrics(stage: Stage) -> None:
    """Beyond fifty, codes and models are one."""
    app = application(stage)
    bounded = app.state.telemetry._bounded  # noqa: SLF001 - instead of a thousand exchanges
    values = [bounded("model", f"m{number}") for number in range(1_000)]
    assert len(set(values)) == 51
    assert values[-1] == "other"
    assert bounded("model", "m0") == "m0"


async def test_every_metric_of_the_table_is_exported(stage: Stage) -> None:
    """And none besides, but for those of the process itself; at most twenty."""
    app = application(stage)
    _, page = await get(app, "/metrics")
    typed = [one.split()[2] for one in page.decode().splitlines() if one.startswith("# TYPE")]
    ours = [one for one in typed if not one.startswith("process_")]
    assert sorted(ours) == sorted(one.name for one in METRICS)
    assert len(METRICS) <= 20


async def test_metrics_can_be_switched_off(stage: Stage) -> None:
    """Then the path does not exist."""
    status, _ = await get(application(stage, telemetry={"metrics": False}), "/metrics")
    assert status == 404


async def test_refused_requests_are_counted_by_code(stage: Stage) -> None:
    """They are no exchanges."""
    app = application(stage)
    await Client(app).post("/chat/sse", b"{")
    _, page = await get(app, "/metrics")
    assert b'cutover_refused_total{code="no_json",flow="chat"} 1.0' in page


@pytest.mark.parametrize(
    ("token", "headers", "peer", "status"),
    [
        ("", {}, "127.0.0.1", 200),
        ("", {}, "10.0.0.1", 401),
        ("", {"x-forwarded-for": "10.0.0.1"}, "127.0.0.1", 401),
        ("s3cret", {}, "127.0.0.1", 401),
        ("s3cret", {"authorization": "Bearer wrong"}, "127.0.0.1", 401),
        ("s3cret", {"authorization": "Basic s3cret"}, "127.0.0.1", 401),
        ("s3cret", {"authorization": "bearer s3cret"}, "10.0.0.1", 200),
    ],
)
async def test_the_status_is_for_operators(
    stage: Stage, token: str, headers: dict[str, str], peer: str, status: int
) -> None:
    """With a token for who bears it, without one for this machine."""
    app = application(stage, server={"flag_token": token}, flows={"chat": GRAPH})
    client = Client(app, sends=headers, peer=peer)
    body = json.loads(await client.post("/cutover/status", b"", method="GET"))
    assert client.status == status
    if status == 200:
        assert body["flows"]["chat"]["effective_percent"] == 100.0
        assert body["flows"]["chat"]["breakers"] == {"legacy": "closed", "graph": "closed"}
