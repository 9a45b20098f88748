"""A worker of several, for the tests: counts what it is told, and writes the page.

Reads commands from its standard input, a line each, and answers each with a line of JSON.
"""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from contract.flows.chat import CHAT, ChatRequest
from cutover.wiring.router import assemble_router
from cutover.wiring.telemetry import Metrics, open_metrics
from router.capture.writer import CaptureCounts
from router.config.loader import parse_settings
from router.router import Router
from router.stack import IN_PROCESS
from router.telemetry.instruments import DURATION, MetricSources
from router.telemetry.metrics import RouterMetrics

WHO = ("chat", "legacy", "legacy")


async def main() -> None:
    """Work until the input ends."""
    settings = parse_settings("", "nothing", {"chat": CHAT})
    nothing: Any = SimpleNamespace(
        name="legacy", fingerprint="", powers=IN_PROCESS, serves=lambda _: True, model=None
    )
    meters = open_metrics(cast("Any", SimpleNamespace(entries={})))
    router = assemble_router(
        flows={"chat": CHAT},
        stacks={"legacy": nothing, "graph": nothing},
        live=lambda _flow, _: nothing,
        captures=nothing,
        settings=lambda: settings,
    )
    async with meters.running(MetricSources(router, CaptureCounts, dict)) as page:
        while line := await asyncio.to_thread(sys.stdin.readline):
            said = msgspec.json.encode(await _do(line.strip(), router, page, meters))
            sys.stdout.write(said.decode() + "\n")
            sys.stdout.flush()


async def _do(command: str, router: Router, page: RouterMetrics, meters: Metrics) -> str:
    accept = ""
    if command.startswith("time "):
        _, seconds, trace = command.split()
        meters.values.observe(DURATION, float(seconds), *WHO, trace=trace)
        accept = "application/openmetrics-text"
    elif command == "open":
        await router.open(CHAT, ChatRequest(message_id="m"), None)
    elif command == "settle":
        stream = await router.open(CHAT, ChatRequest(message_id="m"), None)
        router.ledger.settle(stream.context.exchange, "not_sampled")
    return (await page.page(accept))[0].decode()


asyncio.run(main())
