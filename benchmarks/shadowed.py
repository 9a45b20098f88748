"""What clients pay for mirrors and consoles: routers in turns, one that mirrors, one watched."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import aiohttp
import numpy as np

from benchmarks.processes import ROUTER, configured, provider

PORTS = {"alone": 18_607, "mirrored": 18_608, "watched": 18_609}
CONSOLE, READERS = 18_610, 20
ROUNDS, SECONDS = 6, 8.0
_WATCHED = f"[console]\nport = {CONSOLE}"
_SETTINGS = """
[server]
port = {port}
[stores]
database = "sqlite+aiosqlite:///{folder}/world.db"
[flows.chat]
shadow_percent = {percent}
{more}
"""


async def chat(session: aiohttp.ClientSession, port: int, number: str) -> float:
    """Ask once, read to the end, and return the seconds to the first text."""
    body = {"message_id": number, "content": "Tell me of the sea."}
    began, first = time.perf_counter(), 0.0
    async with session.post(f"http://127.0.0.1:{port}/chat/sse", json=body) as answer:
        async for line in answer.content:
            if not first and b'"SEND"' in line:
                first = time.perf_counter() - began
    return first


async def capacity(session: aiohttp.ClientSession, port: int) -> float:
    """Return chats a second with sixteen clients that ask without a pause."""
    done, until = 0, time.perf_counter() + SECONDS / 2

    async def client(number: int) -> None:
        nonlocal done
        while time.perf_counter() < until:
            await chat(session, port, f"c{port}-{number}-{done}-{time.perf_counter_ns()}")
            done += 1

    await asyncio.gather(*(client(number) for number in range(16)))
    return done / (SECONDS / 2)


async def paced(session: aiohttp.ClientSession, port: int, rate: float) -> list[float]:
    """Ask at a rate, whatever comes back; return the seconds to each first text."""
    loop, asked = asyncio.get_running_loop(), []
    began = loop.time()
    for number in range(int(SECONDS * rate)):
        await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
        asked.append(asyncio.create_task(chat(session, port, f"p{port}-{time.perf_counter_ns()}")))
    return await asyncio.gather(*asked)


async def watch(session: aiohttp.ClientSession) -> None:
    """Read what an open console is sent."""
    timeout = aiohttp.ClientTimeout(total=None)
    url = f"http://127.0.0.1:{CONSOLE}/console/events?flow=chat"
    async with session.get(url, timeout=timeout) as events:
        async for _ in events.content.iter_any():
            pass


async def figures() -> AsyncIterator[str]:
    """Measure all in turns, at a third of what one router can do, and read the ledger."""
    firsts: dict[str, list[float]] = {name: [] for name in PORTS}
    async with (
        provider(5),
        configured(ROUTER, _SETTINGS, PORTS["alone"], percent=0.0, more=""),
        configured(ROUTER, _SETTINGS, PORTS["mirrored"], percent=100.0, more=""),
        configured(ROUTER, _SETTINGS, PORTS["watched"], percent=0.0, more=_WATCHED),
        aiohttp.ClientSession() as session,
        asyncio.TaskGroup() as readers,
    ):
        reading = [readers.create_task(watch(session)) for _ in range(READERS)]
        most = await capacity(session, PORTS["alone"])
        for number in range(ROUNDS + 1):
            for name in [*PORTS][number % 3 :] + [*PORTS][: number % 3]:
                found = await paced(session, PORTS[name], most / 3)
                firsts[name] += found if number else []
        await asyncio.sleep(2)
        url = f"http://127.0.0.1:{PORTS['mirrored']}/cutover/status"
        async with session.get(url) as answer:
            ledger = json.loads(await answer.read())["shadows"]
        for one in reading:
            one.cancel()
    for percent in (50, 95):
        alone, mirrored, watched = (np.percentile(firsts[one], percent) for one in PORTS)
        later, ratio = (mirrored - alone) * 1000, watched / alone
        yield f"first text, mirrored - alone, P{percent}: {later:+.1f} ms (goal P95 1 ms)"
        yield f"first text, {READERS} consoles / none, P{percent}: {ratio:.3f} (goal P95 1.02)"
    yield f"at {most / 3:.1f} chats a second, a third of capacity; shadows: {json.dumps(ledger)}"
