"""The gateway's own listener, while its router stops."""

from __future__ import annotations

import signal
from pathlib import Path

import aiohttp
import pytest

from contract.records import decode_run
from loadtests.simulator import running
from tests.e2e.processes import RouterProcess, router_process
from tests.e2e.test_workers_gateway import gateway_of
from tests.router.gateway.test_tape import Asker, by_headers, stacks
from tests.support.deployment import PLANTED_KEY, Setup, captured
from tests.support.scripted_service import HELLO, WHOLE, Asked, Stream
from tests.support.scripted_service import serving as service_at

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


class LateAsker(Asker):
    """A service that asks its model once the router takes no more users."""

    router: RouterProcess

    async def __call__(self, asked: Asked, stream: Stream) -> None:
        """Let the router be stopped, then ask and answer."""
        self.router.child.send_signal(signal.SIGTERM)
        await self.router.refuses()
        await super().__call__(asked, stream)


async def test_a_stopping_router_answers_the_model_calls_of_open_streams(tmp_path: Path) -> None:
    """The users' listener is closed; the gateway's is, once their streams have ended."""
    legacy, graph = LateAsker(by_headers), Asker(by_headers)
    async with (
        running(api_key=PLANTED_KEY) as provider,
        service_at(legacy) as one,
        service_at(graph) as other,
        router_process(tmp_path, provider.base_url, Setup(more=stacks(one, other))) as router,
        aiohttp.ClientSession() as session,
    ):
        legacy.router, legacy.gateway = router, await gateway_of(tmp_path)
        answer = await router.ask(session, HELLO)
        assert answer.body == WHOLE
        assert [status for status, _ in legacy.heard] == [200]
        assert await router.child.wait() == 0
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"{legacy.gateway}/v1/models")
    [run] = [decode_run(line) for line in captured(tmp_path).splitlines()]
    assert [entry.port for entry in run.tape or ()] == ["model"]
