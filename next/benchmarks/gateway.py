"""What a call through the gateway costs, recorded on a tape, beside nginx and LiteLLM.

LiteLLM's proxy takes part where `LITELLM` names its program.

`python -m benchmarks.gateway PROVIDER` serves it, and begins a run for each call.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import psutil
import uvicorn
import uvloop

from benchmarks.passthrough import EVENTS
from benchmarks.processes import (
    NGINX,
    NGINX_CONFIG,
    announced,
    configured,
    listening,
    running,
)
from benchmarks.streams import listen
from cutover import Exchange, Run
from router.gateway import Gateway, GatewaySettings, Provider, open_connections
from router.gateway.runs import OpenRuns

PORT, NGINX_PORT, LITELLM_PORT = 18_604, 18_605, 18_606
CALLS, AT_ONCE, ROUNDS = 25, 20, 5


_LITELLM = """
model_list:
  - model_name: m
    litellm_params: {{ model: openai/m, api_base: "{url}/v1", api_key: none }}
litellm_settings: {{ telemetry: false }}
general_settings: {{ dangerously_permit_weak_or_unset_master_key: true }}
"""


async def serve(url: str) -> None:
    """Serve a gateway whose calls all are recorded, until cancelled."""
    runs = OpenRuns()
    async with open_connections() as session:
        gateway = Gateway(GatewaySettings([Provider("openai", f"{url}/v1")]), runs, session)

        async def recorded(scope: Any, receive: Any, send: Any) -> None:
            async with Exchange() as exchange:
                run = Run(exchange, "bench")
                path = f"/runs/{runs.open(run)}{scope['path']}".encode()
                await gateway({**scope, "raw_path": path}, receive, send)

        options: dict[str, Any] = {"ws": "none", "lifespan": "off", "proxy_headers": False}
        config = uvicorn.Config(recorded, port=PORT, log_level="warning", **options)
        await uvicorn.Server(config).serve()


async def measure(say: Callable[[str], None]) -> None:
    """Measure calls a second and processor time, in turns with nginx."""
    async with AsyncExitStack() as opened:
        url = await opened.enter_async_context(announced("benchmarks.upstream", str(EVENTS), "0"))
        command = (sys.executable, "-m", "benchmarks.gateway", url)
        process = psutil.Process((await opened.enter_async_context(running(*command))).pid)
        await listening(PORT)
        at = {"gateway": PORT}
        if shutil.which("nginx"):
            where = url.removeprefix("http://")
            await opened.enter_async_context(configured(NGINX, NGINX_CONFIG, NGINX_PORT, url=where))
            at["nginx"] = NGINX_PORT
        if "LITELLM" in os.environ:
            # As its quick start does: one worker, no database.
            program = (os.environ["LITELLM"], "--port", str(LITELLM_PORT), "--num_workers", "1")
            litellm = configured((*program, "--config"), _LITELLM, LITELLM_PORT, url=url)
            await opened.enter_async_context(litellm)
            await asyncio.sleep(2)
            at["litellm"] = LITELLM_PORT
        rates: dict[str, list[float]] = {name: [] for name in at}
        processor, calls = 0.0, CALLS * AT_ONCE
        for number in range(ROUNDS + 1):
            for name, port in at.items():
                began, spent = time.perf_counter(), sum(process.cpu_times()[:2])
                address = f"http://127.0.0.1:{port}/v1/chat/completions"
                each = CALLS if name != "litellm" else CALLS // 8
                heard = await listen(address, AT_ONCE, each, EVENTS)
                assert not heard.lost, name  # noqa: S101 - a bench that loses measures nothing
                if number:
                    rates[name].append(heard.whole / (time.perf_counter() - began))
                    if name == "gateway":
                        processor += sum(process.cpu_times()[:2]) - spent
        medians = {name: statistics.median(found) for name, found in rates.items()}
        shown = ", ".join(f"{name} {rate:.0f}" for name, rate in medians.items())
        spent = processor / (ROUNDS * calls) * 1000
        say(
            f"recorded calls of {EVENTS} events a second: {shown}; {spent:.2f} ms of processor each"
        )
        if "litellm" in medians:
            pairs = zip(rates["gateway"], rates["litellm"], strict=True)
            ratio = statistics.median(one / two for one, two in pairs)
            say(f"gateway over LiteLLM: {ratio:.0f} × (goal 20)")


def figures(say: Callable[[str], None] = print) -> None:
    """Measure and print."""
    uvloop.run(measure(say))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        uvloop.run(serve(sys.argv[1]))
    else:
        figures()
