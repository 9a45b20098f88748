"""Measures what `CutoverTransport` adds to a call of the model, for the bench; rows go to stdout.

    python -m benchmarks.parts.transports CALLS

From the request to the first token, in process, in the run that serves, beside the same client
without it; the provider is simulated, in a process of its own.
"""

from __future__ import annotations

import sys
import time
from contextlib import AsyncExitStack
from statistics import median
from typing import Any, Final

import httpx2
import msgspec
import uvloop

from benchmarks.rows import BenchRow, at_most
from contract.flow import Request
from contract.flows.chat import CHAT
from cutover_client import CutoverTransport
from effects.tape import TapeSession
from effects.testing import World
from loadtests.processes import server_process
from router.gateway.in_process import client_bound
from router.serving.run import RunRequest

MOST_MS: Final = 1.0
_CHAT: Final = "chat/completions"
_OTHER: Final = "embeddings"


async def first_token(client: httpx2.AsyncClient, path: str, number: int) -> float:
    """Ask once, and read to the end; return the milliseconds to the first bytes."""
    body: dict[str, Any] = {"model": "text-embedding-3-small", "input": f"Hello {number}"}
    if path == _CHAT:
        said = [{"role": "user", "content": f"Hello {number}"}]
        body = {"model": "sim-chat", "messages": said, "stream": True}
    began, found = time.perf_counter(), 0.0
    async with client.stream("POST", path, json=body) as response:
        response.raise_for_status()
        async for _ in response.aiter_bytes():
            found = found or (time.perf_counter() - began) * 1_000
    return found


async def on_tape(client: httpx2.AsyncClient, path: str, number: int) -> float:
    """Ask in a run of an exchange of its own."""
    exchange = World().exchange()
    session = TapeSession(exchange, "serving")
    with client_bound(RunRequest(CHAT, "legacy", Request(None, None), "serving"), session):
        took = await first_token(client, path, number)
    await exchange.close()
    return took


async def measure(calls: int, url: str) -> list[BenchRow]:
    """Measure chat completions and another API, each call beside one without the transport."""
    async with AsyncExitStack() as opened:
        base = f"{url}/v1/"
        bare, taped = [
            await opened.enter_async_context(httpx2.AsyncClient(base_url=base, transport=one))
            for one in (httpx2.AsyncHTTPTransport(), CutoverTransport())
        ]
        rows = []
        for name, path in (("chat", _CHAT), ("other_api", _OTHER)):
            plain: list[float] = []
            through: list[float] = []
            for number in range(calls + 10):
                plain.append(await first_token(bare, path, number))
                through.append(await on_tape(taped, path, number))
            rows.append(_row(name, plain[10:], through[10:]))
        return rows


def _row(name: str, plain: list[float], through: list[float]) -> BenchRow:
    alone = median(plain)
    how = (
        f"what the transport adds to a call in process, to its first bytes: P50 of {len(plain)} "
        f"calls, {median(through):.3g} ms, minus {alone:.3g} ms by the same client without it"
    )
    return at_most(f"transport.{name}.first_token", median(through) - alone, "ms", MOST_MS, how)


def main() -> None:
    """Measure and print."""
    with server_process("loadtests.simulator") as provider:
        rows = uvloop.run(measure(int(sys.argv[1]), provider.url))
    sys.stdout.buffer.write(msgspec.json.encode(rows))


if __name__ == "__main__":
    main()
