"""What a call through the gateway costs, recorded on a tape: beside nginx, which records nothing.

`python -m benchmarks.gateway PROVIDER` serves it, and begins a run for each call.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import psutil
import uvicorn
import uvloop

from benchmarks.passing import EVENTS, listening, nginx, running, upstream
from benchmarks.streams import listen
from cutover import Exchange, Run
from router.gateway import Gateway, GatewaySettings, Provider, open_connections
from router.runs import OpenRuns

PORT, NGINX_PORT = 18_604, 18_605
CALLS, AT_ONCE, ROUNDS = 25, 20, 5


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
        url = await opened.enter_async_context(upstream(EVENTS, 0))
        command = (sys.executable, "-m", "benchmarks.gateway", url)
        process = psutil.Process((await opened.enter_async_context(running(*command))).pid)
        await listening(PORT)
        at = {"gateway": PORT}
        if shutil.which("nginx"):
            await opened.enter_async_context(nginx(url, NGINX_PORT))
            at["nginx"] = NGINX_PORT
        seconds, processor, calls = dict.fromkeys(at, 0.0), 0.0, CALLS * AT_ONCE
        for number in range(ROUNDS + 1):
            for name, port in at.items():
                began, spent = time.perf_counter(), sum(process.cpu_times()[:2])
                address = f"http://127.0.0.1:{port}/v1/chat/completions"
                heard = await listen(address, AT_ONCE, CALLS, EVENTS)
                assert not heard.lost, name  # noqa: S101 - a bench that loses measures nothing
                if number:
                    seconds[name] += time.perf_counter() - began
                    if name == "gateway":
                        processor += sum(process.cpu_times()[:2]) - spent
        rates = ", ".join(f"{one} {ROUNDS * calls / took:.0f}" for one, took in seconds.items())
        each = processor / (ROUNDS * calls) * 1000
        say(f"recorded calls of {EVENTS} events a second: {rates}; {each:.2f} ms of processor each")


def figures(say: Callable[[str], None] = print) -> None:
    """Measure and print."""
    uvloop.run(measure(say))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        uvloop.run(serve(sys.argv[1]))
    else:
        figures()
