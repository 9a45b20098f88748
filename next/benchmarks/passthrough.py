"""What passing a service's streams through costs: the router beside no router, and beside nginx."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psutil
import uvloop

from benchmarks.cost import percentile
from benchmarks.streams import Heard, listen

EVENTS = 64
_NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log stderr warn;
events {{ worker_connections 8192; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream service {{ server {service}; keepalive 256; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://service; proxy_http_version 1.1; proxy_set_header connection "";
      proxy_buffering off; proxy_read_timeout 600s;
    }}
  }}
}}
"""
_ROUTER = """
[server]
port = {port}
[stores]
database = "sqlite+aiosqlite:///{folder}/world.db"
[limits]
streams = 5000
[stacks.legacy]
url = "{url}"
[flows.passing]
paths = ["/ask"]
keys = {{ user = "body.user" }}
"""


@asynccontextmanager
async def running(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program until the block ends."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def upstream(events: int, pause_ms: float) -> AsyncIterator[str]:
    """Start a service of its own process; yield its address."""
    command = (sys.executable, "-m", "benchmarks.upstream", str(events), str(pause_ms))
    async with running(*command) as process:
        assert process.stdout is not None  # noqa: S101 - it is piped
        yield (await process.stdout.readline()).decode().strip()


@asynccontextmanager
async def router(url: str, port: int) -> AsyncIterator[psutil.Process]:
    """Start a router before a service; yield its process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cutover.toml"
        path.write_text(_ROUTER.format(port=port, folder=folder, url=url))
        command = (sys.executable, "-m", "harness", "serve", "--config", str(path))
        async with running(*command) as process:
            await listening(port)
            yield psutil.Process(process.pid)


@asynccontextmanager
async def nginx(url: str, port: int) -> AsyncIterator[None]:
    """Start nginx before a service."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nginx.conf"
        service = url.removeprefix("http://")
        path.write_text(_NGINX.format(port=port, folder=folder, service=service))
        async with running("nginx", "-c", str(path)):
            await listening(port)
            yield


async def listening(port: int) -> None:
    """Wait until a port of this machine takes connections."""
    for _ in range(600):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


async def throughput(rounds: int, say: Callable[[str], None]) -> None:
    """Measure streams a second through the router and through nginx, in turns."""
    found: dict[str, list[float]] = {"router": [], "nginx": [], "direct": []}
    async with AsyncExitStack() as opened:
        url = await opened.enter_async_context(upstream(EVENTS, 0))
        await opened.enter_async_context(router(url, 18_601))
        at = {"router": "http://127.0.0.1:18601/ask", "direct": f"{url}/ask"}
        if shutil.which("nginx"):
            await opened.enter_async_context(nginx(url, 18_602))
            at["nginx"] = "http://127.0.0.1:18602/ask"
        for number in range(rounds + 1):
            for name, address in at.items():
                began = time.perf_counter()
                heard = await listen(address, 20, 25, EVENTS)
                assert not heard.lost, name  # noqa: S101 - a bench that loses measures nothing
                if number:
                    found[name].append(heard.whole / (time.perf_counter() - began))
    medians = {name: statistics.median(one) for name, one in found.items() if one}
    rates = ", ".join(f"{name} {rate:.0f}" for name, rate in medians.items())
    say(f"streams of {EVENTS} events a second, 20 at once: {rates}")
    if "nginx" in medians:
        ratios = [one / two for one, two in zip(found["router"], found["nginx"], strict=True)]
        say(f"passed through over nginx: {statistics.median(ratios):.2f} (goal 0.40)")


async def lateness(streams: int, pause_ms: float, say: Callable[[str], None]) -> None:
    """Measure how much later pieces come through the router, with many streams open."""
    events = int(10_000 / pause_ms)
    async with AsyncExitStack() as opened:
        url = await opened.enter_async_context(upstream(events, pause_ms))
        process = await opened.enter_async_context(router(url, 18_603))
        both: dict[str, Heard] = {}
        for name, where in (("direct", url), ("router", "http://127.0.0.1:18603")):
            both[name] = await listen(f"{where}/ask", streams, 1, events, spread=5.0)
        memory = process.memory_info().rss / 1e6
    direct, through = both["direct"], both["router"]
    parts = []
    for percent in (50, 95):
        first = percentile(through.first, percent) - percentile(direct.first, percent)
        late = percentile(through.late, percent) - percentile(direct.late, percent)
        parts.append(f"P{percent} first {first * 1000:+.1f} ms, every {late * 1000:+.1f} ms")
    rate = 1000 / pause_ms
    say(
        f"{streams} open streams at {rate:g} events/s: {'; '.join(parts)}; "
        f"lost {through.lost}, {memory:.0f} MB"
    )


def figures(say: Callable[[str], None] = print) -> None:
    """Measure and print."""

    async def measure() -> None:
        await throughput(5, say)
        await lateness(200, 50, say)
        await lateness(2000, 100, say)

    uvloop.run(measure())


if __name__ == "__main__":
    figures()
