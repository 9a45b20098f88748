"""What passing a service's streams through costs: the router beside no router, and beside nginx."""

from collections.abc import AsyncIterator

import numpy as np

from benchmarks.processes import ROUTER, announced, configured, nginx
from benchmarks.streams import EVENTS, listen, median_ratio, medians, rates

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


async def throughput() -> AsyncIterator[str]:
    """Measure streams a second through the router and through nginx, in turns."""
    async with (
        announced("benchmarks.upstream", str(EVENTS), "0") as url,
        configured(ROUTER, _SETTINGS, 18_601, url=url),
        nginx(url, 18_602) as beside,
    ):
        at = {"router": "http://127.0.0.1:18601", "direct": url, **beside}
        found = await rates({name: f"{origin}/ask" for name, origin in at.items()})
    yield f"streams of {EVENTS} events a second, 20 at once: {medians(found)}"
    if "nginx" in found:
        yield f"passed through over nginx: {median_ratio(found, 'router', 'nginx'):.2f} (goal 0.40)"


async def lateness(streams: int, pause_ms: float) -> str:
    """Measure how much later pieces come through the router, with many streams open."""
    events = int(10_000 / pause_ms)
    async with (
        announced("benchmarks.upstream", str(events), str(pause_ms)) as url,
        configured(ROUTER, _SETTINGS, 18_603, url=url) as process,
    ):
        direct = await listen(f"{url}/ask", streams, 1, events, spread=5.0)
        routed = await listen("http://127.0.0.1:18603/ask", streams, 1, events, spread=5.0)
        memory = process.memory_info().rss / 1e6
    later = {
        f"P{percent} {name}": np.percentile(through, percent) - np.percentile(before, percent)
        for percent in (50, 95)
        for name, through, before in (
            ("first", routed.first, direct.first),
            ("every", routed.late, direct.late),
        )
    }
    shown = ", ".join(f"{name} {seconds * 1000:+.1f} ms" for name, seconds in later.items())
    open_at = f"{streams} open streams at {1000 / pause_ms:g} events/s"
    return f"{open_at}: {shown}; lost {routed.lost}, {memory:.0f} MB"


async def figures() -> AsyncIterator[str]:
    """Measure throughput, and then lateness."""
    async for line in throughput():
        yield line
    yield await lateness(200, 50)
    yield await lateness(2000, 100)
