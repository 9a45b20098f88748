"""Measures what `CutoverTransport` and the gateway add to a call of the model; rows go to stdout.

    python -m benchmarks.parts.transports CALLS

From the request to the first token, in the run that serves, beside the same client without them;
the provider is simulated, in a process of its own.
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

from benchmarks.parts.gateways import gateway
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
_MODEL: Final = """
[providers.simulated]
base_url = "{url}/v1"

[models.sim-chat]
provider = "simulated"
"""
_IN_AN_EXCHANGE: Final = 20
"""Calls of one exchange, whose tape is bounded."""


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
            what = "what the transport adds to a call in process"
            rows.append(_row(f"transport.{name}", what, plain[10:], through[10:]))
        rows.append(await _gateway_row(bare, calls, url))
        return rows


async def _gateway_row(bare: httpx2.AsyncClient, calls: int, url: str) -> BenchRow:
    """Measure chat completions through a router's gateway, in exchanges that are open."""
    plain: list[float] = []
    through: list[float] = []
    async with gateway(_MODEL.format(url=url)) as (own, opened):
        for start in range(0, calls + 10, _IN_AN_EXCHANGE):
            async with (
                opened() as headers,
                httpx2.AsyncClient(base_url=f"{own}/v1/", headers=dict(headers)) as client,
            ):
                await first_token(client, _CHAT, start)  # connects
                for number in range(start, start + _IN_AN_EXCHANGE):
                    plain.append(await first_token(bare, _CHAT, number))
                    through.append(await first_token(client, _CHAT, number))
    return _row("gateway.chat", "what the gateway adds to a call of an exchange", plain, through)


def _row(name: str, what: str, plain: list[float], through: list[float]) -> BenchRow:
    alone = median(plain)
    how = (
        f"{what}, to its first bytes: P50 of {len(plain)} calls, {median(through):.3g} ms, minus "
        f"{alone:.3g} ms by the same client without it"
    )
    return at_most(f"{name}.first_token", median(through) - alone, "ms", MOST_MS, how)


def main() -> None:
    """Measure and print."""
    with server_process("loadtests.simulator") as provider:
        rows = uvloop.run(measure(int(sys.argv[1]), provider.url))
    sys.stdout.buffer.write(msgspec.json.encode(rows))


if __name__ == "__main__":
    main()
