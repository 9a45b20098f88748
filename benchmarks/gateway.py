"""What a call through the gateway costs, recorded on a tape, beside nginx and LiteLLM.

LiteLLM's proxy takes part where `LITELLM` names its program.

`python -m benchmarks.gateway PROVIDER` serves it, and begins a run for each call.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import uvicorn
import uvloop

from benchmarks.processes import announced, configured, listening, nginx, running
from benchmarks.streams import EVENTS, median_ratio, medians, rates
from cutover import Exchange, Run
from harness.server.listener import listener
from router.gateway import Gateway, GatewaySettings, Provider, open_connections
from router.gateway.runs import OpenRuns

PORT, NGINX_PORT, LITELLM_PORT = 18_604, 18_605, 18_606
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

        await uvicorn.Server(listener(recorded, port=PORT, lifespan="off")).serve()


async def figures() -> AsyncIterator[str]:
    """Measure calls a second through each, in turns."""
    async with AsyncExitStack() as opened:
        url = await opened.enter_async_context(announced("benchmarks.upstream", str(EVENTS), "0"))
        command = (sys.executable, "-m", "benchmarks.gateway", url)
        await opened.enter_async_context(running(*command))
        await listening(PORT)
        at = {"gateway": f"http://127.0.0.1:{PORT}"}
        at |= await opened.enter_async_context(nginx(url, NGINX_PORT))
        if "LITELLM" in os.environ:
            # As its quick start does: one worker, no database.
            program = (os.environ["LITELLM"], "--port", str(LITELLM_PORT), "--num_workers", "1")
            litellm = configured((*program, "--config"), _LITELLM, LITELLM_PORT, url=url)
            await opened.enter_async_context(litellm)
            await asyncio.sleep(2)
            at["litellm"] = f"http://127.0.0.1:{LITELLM_PORT}"
        found = await rates({name: f"{one}/v1/chat/completions" for name, one in at.items()})
        yield f"recorded calls of {EVENTS} events a second: {medians(found)}"
        if "litellm" in found:
            ratio = median_ratio(found, "gateway", "litellm")
            yield f"gateway over LiteLLM: {ratio:.0f} × (goal 20)"


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
