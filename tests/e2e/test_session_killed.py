"""A router is killed in the middle of a turn: the session goes on, whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import msgspec
import pytest

from contract.wire.sse import SseDecoder
from graph_impl.threads import opened_threads
from loadtests.simulator import running
from tests.e2e.processes import RouterProcess, router_process
from tests.e2e.session import CHAT, body, say, setup, turns, types
from tests.support.deployment import PLANTED_KEY, deployed, moment
from tests.support.patience import PATIENCE_S
from tests.support.session_turns import said

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


@pytest.mark.untraced
async def test_a_session_outlives_kill_minus_nine(tmp_path: Path) -> None:
    """Killed in its first turn on graph, gone on with on legacy, then on graph again."""
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        running(api_key=PLANTED_KEY) as provider,
        aiohttp.ClientSession(connector=connector) as client,
        router_process(
            tmp_path, provider.base_url, setup(tmp_path, 100, 'model_id = "slow"')
        ) as router,
    ):
        named = await broken_off(router, client)
    for percent, text in ((0, "second"), (100, "third")):
        async with deployed(tmp_path, setup(tmp_path, percent)) as place:
            async with asyncio.timeout(PATIENCE_S):
                while (answer := await say(place.session, place.url, text, named)).status == 409:
                    await moment()
            assert types(answer)[-1] == "done"
            await place.settled()
    spoken = turns(tmp_path)
    assert [role for role, _ in spoken] == ["user", "user", "assistant", "user", "assistant"]
    assert [text for role, text in spoken if role == "user"] == ["first", "second", "third"]
    async with opened_threads(f"sqlite:///{tmp_path}/threads.sqlite") as threads:
        kept = await said(threads, named)
    assert kept is not None
    assert [(role, text) for _, role, text in kept] == spoken


async def broken_off(router: RouterProcess, client: aiohttp.ClientSession) -> str:
    """Begin a session, and kill who answers; gives its name."""
    decoder = SseDecoder()
    data = msgspec.json.encode(body("first"))
    async with client.post(router.url + CHAT, data=data) as response:
        events = decoder.feed(await response.content.readany())
        router.child.kill()
        await router.child.wait()
    return str(msgspec.json.decode(events[0].data)["data"]["session_id"])
