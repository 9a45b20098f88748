"""What passing a service's streams through costs: the router beside no router, and beside nginx."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

import uvloop

from benchmarks.cost import percentile
from benchmarks.processes import NGINX, NGINX_CONFIG, ROUTER, announced, configured
from benchmarks.streams import Heard, listen

EVENTS = 64
_SETTINGS = """
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


async def throughput(rounds: int, say: Callable[[str], None]) -> None:
    """Measure streams a second through the router and through nginx, in turns."""
    found: dict[str, list[float]] = {"router": [], "nginx": [], "direct": []}
    async with AsyncExitStack() as opened:
        url = await opened.enter_async_context(announced("benchmarks.upstream", str(EVENTS), "0"))
        await opened.enter_async_context(configured(ROUTER, _SETTINGS, 18_601, url=url))
        at = {"router": "http://127.0.0.1:18601/ask", "direct": f"{url}/ask"}
        if shutil.which("nginx"):
            where = url.removeprefix("http://")
            await opened.enter_async_context(configured(NGINX, NGINX_CONFIG, 18_602, url=where))
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
        service = announced("benchmarks.upstream", str(events), str(pause_ms))
        url = await opened.enter_async_context(service)
        router = configured(ROUTER, _SETTINGS, 18_603, url=url)
        process = await opened.enter_async_context(router)
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
