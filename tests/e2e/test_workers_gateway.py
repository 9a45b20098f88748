"""Several workers and the gateway: a call reaches the worker whose exchange it belongs to."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import aiohttp
import pytest

from contract.records import decode_run
from loadtests.simulator import running
from tests.e2e.processes import router_process
from tests.router.gateway.test_tape import Asker, by_headers, by_path, stacks
from tests.support.deployment import PLANTED_KEY, Setup, captured, until
from tests.support.scripted_service import WHOLE, Asked
from tests.support.scripted_service import serving as service_at

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

ENOUGH = 10
"""Calls of which one reaches the wrong worker of two, but for one time in a thousand."""


def by_trace(asked: Asked) -> tuple[str, dict[str, str]]:
    """Send nothing but the trace of the request."""
    return "", {"traceparent": asked.header("traceparent")[0]}


async def test_whichever_worker_is_asked_the_call_is_on_its_exchanges_tape(
    tmp_path: Path,
) -> None:
    """By headers, path or trace; the shadow, which asks any of them too, is played its tape."""
    ways = (by_headers, by_path, by_trace)
    legacy, graph = Asker(ways[0]), Asker(ways[0])
    async with (
        running(api_key=PLANTED_KEY) as provider,
        service_at(legacy) as one,
        service_at(graph) as other,
    ):
        setup = Setup(
            more=stacks(one, other),
            shadow=100,
            others=f"sqlite:///{tmp_path}/store.sqlite",
        )
        async with (
            router_process(tmp_path, provider.base_url, setup, "--workers", "2") as router,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
        ):
            gateway = await gateway_of(tmp_path)
            legacy.gateway = graph.gateway = gateway
            for turn, way in enumerate(ways):
                legacy.tells = graph.tells = way
                numbers = range(turn * ENOUGH, (turn + 1) * ENOUGH)
                asking = (_ask(session, router.url, number) for number in numbers)
                assert await asyncio.gather(*asking) == [WHOLE] * ENOUGH, way
                await until(lambda: len(graph.heard) == len(legacy.heard))
            path = "/exchanges/gone/v1/chat/completions"
            body = {"model": "gpt-4.1", "messages": [{"role": "user", "content": "Hello"}]}
            async with session.post(gateway + path, json=body) as response:
                code = (await response.json())["error"]["code"]
                assert (response.status, code) == (404, "unknown_exchange")
            assert len(graph.heard) == len(ways) * ENOUGH
            assert provider.ledger.counts()["total"] == len(graph.heard), "no shadow asks the model"
            router.child.send_signal(signal.SIGTERM)
            assert await router.child.wait() == 0
    runs = [decode_run(line) for line in captured(tmp_path).splitlines()]
    served = [run for run in runs if run.role == "serving"]
    shadows = [run for run in runs if run.role == "shadow"]
    assert [len(run.tape or ()) for run in served] == [1] * len(graph.heard)
    assert [play.how for run in shadows for play in run.plays] == ["exact"] * len(graph.heard)
    assert [status for status, _ in legacy.heard] == [200] * len(graph.heard)
    assert all(answer.endswith(b"data: [DONE]\n\n") for _, answer in legacy.heard)


async def gateway_of(folder: Path) -> str:
    """Return the address that a router, started in a folder, announces for its gateway."""
    announced: list[str] = []

    def found() -> bool:
        lines = (folder / "out").read_text("utf-8").splitlines()
        announced[:] = [line for line in lines if line.startswith("  gateway on ")]
        return bool(announced)

    await until(found)
    return announced[0].rpartition(" ")[2]


async def _ask(session: aiohttp.ClientSession, url: str, number: int) -> bytes:
    body = {"message_id": f"m{number}", "content": "Hello"}
    headers = {"traceparent": f"00-{number + 1:032x}-b7ad6b7169203331-01"}
    async with session.post(f"{url}/chat/sse", data=json.dumps(body), headers=headers) as answer:
        return await answer.read()
