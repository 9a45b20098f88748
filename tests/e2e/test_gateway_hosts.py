"""Several hosts behind one address: a gateway call reaches the host that has its exchange."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from contract.records import decode_run
from loadtests.processes import own_port
from loadtests.simulator import running
from tests.e2e.processes import RouterProcess, router_process
from tests.e2e.redis_server import own_redis
from tests.router.gateway.test_tape import Asker, by_headers, by_path, stacks
from tests.support.deployment import PLANTED_KEY, Setup, captured, until
from tests.support.scripted_service import WHOLE, Asked
from tests.support.scripted_service import serving as service_at

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

ENOUGH = 6


def by_trace(asked: Asked) -> tuple[str, dict[str, str]]:
    """Send nothing but the trace of the request."""
    return "", {"traceparent": asked.header("traceparent")[0]}


@dataclass
class Host:
    """A router, the address of its gateway, and the folder with what it captures."""

    router: RouterProcess
    gateway: str
    folder: Path


@dataclass
class Hosts:
    """Two hosts with the same stack, which asks whichever gateway it is told to."""

    one: Host
    other: Host
    asker: Asker
    session: aiohttp.ClientSession

    async def ask(self, host: Host, number: int) -> bytes:
        """Ask a host; the stack's call goes to the gateway of the other one."""
        body = {"message_id": f"{host.folder.name}-{number}", "content": "Hello"}
        headers = {"traceparent": f"00-{number + 1:032x}-b7ad6b7169203331-01"}
        url = f"{host.router.url}/chat/sse"
        async with self.session.post(url, data=json.dumps(body), headers=headers) as answer:
            return await answer.read()


@asynccontextmanager
async def two_hosts(folder: Path) -> AsyncIterator[Hosts]:
    """Start two hosts that share a Redis."""
    async with AsyncExitStack() as opened:
        provider = await opened.enter_async_context(running(api_key=PLANTED_KEY))
        redis = await opened.enter_async_context(own_redis(folder))
        asker = Asker(by_headers)
        service = await opened.enter_async_context(service_at(asker))
        hosts: list[Host] = []
        for name, arguments in (("one", ()), ("other", ("--workers", "2"))):
            port = opened.enter_context(own_port())
            own = folder / name
            own.mkdir()
            address = f'"127.0.0.1:{port}"'
            listen = f"listen = {address}\nadvertise = {address}"
            setup = Setup(
                more=stacks(service, service).replace('listen = "127.0.0.1:0"', listen),
                others=f"sqlite:///{own}/store.sqlite",
                locks=redis.url,
                pins=redis.url,
            )
            started = router_process(own, provider.base_url, setup, *arguments)
            router = await opened.enter_async_context(started)
            hosts.append(Host(router, f"http://127.0.0.1:{port}", own))
        connector = aiohttp.TCPConnector(force_close=True)
        session = await opened.enter_async_context(aiohttp.ClientSession(connector=connector))
        one, other = hosts
        yield Hosts(one, other, asker, session)


async def test_a_call_that_lands_elsewhere_is_passed_on(tmp_path: Path) -> None:
    """By header, path or trace, from either host, a worker alone or one of two."""
    async with two_hosts(tmp_path) as hosts:
        for turn, tells in enumerate((by_headers, by_path, by_trace)):
            for host, other in ((hosts.one, hosts.other), (hosts.other, hosts.one)):
                hosts.asker.tells, hosts.asker.gateway = tells, other.gateway
                numbers = range(turn * ENOUGH, (turn + 1) * ENOUGH)
                answers = await asyncio.gather(*(hosts.ask(host, one) for one in numbers))
                assert answers == [WHOLE] * ENOUGH, (tells, host.folder.name)
        for host in (hosts.one, hosts.other):
            host.router.child.terminate()
            assert await host.router.child.wait() == 0
    for host in (hosts.one, hosts.other):
        runs = [decode_run(line) for line in captured(host.folder).splitlines()]
        assert [len(run.tape or ()) for run in runs] == [1] * 3 * ENOUGH


async def test_one_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    """A host that was killed, until it is known to be gone; its exchange is served by nobody."""
    async with two_hosts(tmp_path) as hosts:
        answered: list[tuple[int, Any]] = []

        async def refused(exchange: str) -> bool:
            url = f"{hosts.other.gateway}/exchanges/{exchange}/v1/chat/completions"
            body = {"model": "gpt-4.1", "messages": [{"role": "user", "content": "Hello"}]}
            async with hosts.session.post(url, json=body) as response:
                answered.append((response.status, (await response.json())["error"]))
            return answered[-1][0] == 503

        hosts.asker.gateway = hosts.one.gateway
        assert await hosts.ask(hosts.one, 1) == WHOLE
        (asked,) = hosts.asker.asked
        exchange = asked.header("x-cutover-exchange")[0]
        hosts.one.router.child.kill()
        await hosts.one.router.child.wait()
        assert await refused(exchange)
        status, error = answered[-1]
        assert (status, error["code"]) == (503, "exchange_elsewhere")
        assert hosts.one.gateway.removeprefix("http://") in error["message"]
        await refused("f" * 40)
        assert (answered[-1][0], answered[-1][1]["code"]) == (404, "unknown_exchange")


async def test_without_a_redis_there_are_no_other_hosts(tmp_path: Path) -> None:
    """It is said at the start."""
    more = '[gateway]\nenabled = true\nadvertise = "127.0.0.1:1"'
    with pytest.raises(AssertionError, match=r"\[gateway\] advertise needs \[stores\]"):
        async with router_process(tmp_path, "http://127.0.0.1:9/v1", Setup(more=more)):
            await until(lambda: True)
