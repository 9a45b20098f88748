"""Exemplars: of a slow bucket on the dashboard to the trace of an exchange in it."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client.exposition import generate_latest

from loadtests.processes import own_port
from router.telemetry import instruments as i
from tests.conftest import ROOT
from tests.support.deployment import Deployment, Setup, deployed, moment
from tests.support.metrics_page import traced
from tests.support.patience import PATIENCE_S
from tests.support.programs import installed
from tests.support.span_collector import collecting

pytestmark = pytest.mark.sockets

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
METRICS = "[metrics]\nenabled = true\n"
TIMES = (i.FIRST_FRAME, i.FIRST_TEXT, i.LAST_FRAME, i.LONGEST_GAP, i.DURATION)
HELLO = {"message_id": "m", "content": "Hello"}
TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED, NOT_SAMPLED = (f"00-{TRACE}-b7ad6b7169203331-{flags}" for flags in ("01", "00"))


async def page(place: Deployment, accept: str) -> str:
    """Read the page of metrics in a format."""
    async with place.session.get(f"{place.url}/metrics", headers={"accept": accept}) as response:
        return await response.text()


async def test_a_scrape_names_the_trace_of_a_real_request(tmp_path: Path) -> None:
    """The one that is sent to the collector, in the bucket of its time; each time has one."""
    async with collecting() as collector:
        more = METRICS + '[tracing]\npercent = 100\nendpoint_env = "COLLECTOR"\n'
        setup = Setup(more=more, environ={"COLLECTOR": f"{collector.url}/v1/traces"})
        async with deployed(tmp_path, setup) as place:
            await place.ask(HELLO)
            await place.settled()
            said = await page(place, OPENMETRICS)
    [sent] = collector.traces("POST /chat/sse")
    for instrument in TIMES:
        [(least, exemplar)] = traced(said, instrument).items()
        assert exemplar.labels == {"trace_id": sent}
        bounds = [*instrument.buckets, math.inf]
        assert float(least) == next(bound for bound in bounds if exemplar.value <= bound)


async def test_without_traces_of_its_own_it_is_the_callers(tmp_path: Path) -> None:
    """Where the caller samples it; the plain format has no exemplars, and is as without them."""
    async with deployed(tmp_path, Setup(more=METRICS)) as place:
        await place.ask(HELLO, headers={"traceparent": NOT_SAMPLED})
        assert not traced(await page(place, OPENMETRICS), i.DURATION)
        await place.ask(HELLO, headers={"traceparent": SAMPLED})
        [exemplar] = traced(await page(place, OPENMETRICS), i.DURATION).values()
        plain = await page(place, "text/plain")
        metrics = place.services.metrics
        assert metrics is not None
        as_the_client_writes_it = generate_latest(metrics.values.registry).decode()
    assert exemplar.labels == {"trace_id": TRACE}
    assert "cutover_exchange_duration_seconds_bucket" in plain
    assert steady(plain) == steady(as_the_client_writes_it)


def steady(said: str) -> list[str]:
    """Return the lines of a page that do not change from one second to the next."""
    return [line for line in said.splitlines() if "cpu_" not in line and "memory_" not in line]


@asynccontextmanager
async def prometheus(folder: Path, target: str) -> AsyncIterator[str]:
    """Run Prometheus with storage of exemplars; yields its address."""
    job = {
        "job_name": "cutover",
        "scrape_interval": "200ms",
        "scrape_timeout": "200ms",
        "static_configs": [{"targets": [target.removeprefix("http://")]}],
    }
    (folder / "prometheus.yml").write_bytes(msgspec.json.encode({"scrape_configs": [job]}))
    with own_port() as port:
        process = await asyncio.create_subprocess_exec(
            installed("prometheus", "prometheus"),
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            f"--web.listen-address=127.0.0.1:{port}",
            "--enable-feature=exemplar-storage",
            "--log.level=error",
            cwd=folder,
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            await process.wait()


async def stored(session: aiohttp.ClientSession, server: str, query: str) -> Any:
    """Return the exemplars that Prometheus has stored of some series, once it has any."""
    asked = {"query": query, "start": "0", "end": "9999999999"}
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(aiohttp.ClientConnectionError):
                async with session.get(f"{server}/api/v1/query_exemplars", params=asked) as answer:
                    # 503 while it starts, and then nothing before the first scrape.
                    if answer.status == 200 and (found := (await answer.json())["data"]):
                        return found
            await moment()


@pytest.mark.slow
async def test_prometheus_answers_the_dashboards_query_with_them(tmp_path: Path) -> None:
    """It ingests them from a scrape; each panel that asks for exemplars gets the request's."""
    board = json.loads((ROOT / "deploy" / "grafana.json").read_text("utf-8"))
    asked = [one for panel in board["panels"] for one in panel["targets"] if one.get("exemplar")]
    assert len(asked) == 3
    async with deployed(tmp_path, Setup(more=METRICS)) as place:
        await place.ask(HELLO, headers={"traceparent": SAMPLED})
        async with prometheus(tmp_path, place.url) as server:
            for one in asked:
                query = one["expr"].replace("$__rate_interval", "1m").replace("$flow", "chat")
                [series] = await stored(place.session, server, query)
                assert series["seriesLabels"]["served"] == "legacy"
                assert [found["labels"] for found in series["exemplars"]] == [{"trace_id": TRACE}]
