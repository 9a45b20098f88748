"""A router is killed between `done` and what follows it: the next one learns, once."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from loadtests.simulator import running
from tests.e2e.processes import router_process
from tests.e2e.session import say, setup, types
from tests.support.asgi import served
from tests.support.deployment import PLANTED_KEY, Setup, deployed, until
from tests.support.postgres import execute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.untraced]

MORE = """extract_from = 2
model_id = "near"
[providers.near]
base_url = "{provider}/v1"
[models.near]
provider = "near"
[exchanges]
journal = {journal}
[admin]
audit_path = "{folder}/audit.jsonl"
"""


@dataclass
class Provider:
    """A model that draws a fact from a conversation, the first time once it is too late."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    killed: asyncio.Event = field(default_factory=asyncio.Event)
    learns: int = 0

    async def answer(self, request: Request) -> Response:
        """Answer a completion."""
        call, text = msgspec.json.decode(await request.body()), "hello"
        if "response_format" in call:
            self.learns += 1
            self.asked.set()
            if self.learns == 1:
                await self.killed.wait()
            text = '{"facts": ["likes quinces"]}'
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": "stop"}
        head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        chunk = msgspec.json.encode({**head, "choices": [choice]}).decode()
        body = f"data: {chunk}\n\ndata: [DONE]\n\n"
        return Response(body, media_type="text/event-stream")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve it; gives its address."""
        route = Route("/v1/chat/completions", self.answer, methods=["POST"])
        async with served(Starlette(routes=[route])) as url:
            yield url


async def killed_after_done(folder: Path, provider: Provider, setup_: Setup) -> None:
    """Serve one turn, and kill the router when it has begun to learn."""
    async with (
        running(api_key=PLANTED_KEY) as other,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as client,
        router_process(folder, other.base_url, setup_) as router,
    ):
        answer = await say(client, router.url, "I like quinces")
        assert types(answer)[-1] == "done"
        await provider.asked.wait()
        router.child.kill()
        await router.child.wait()
        provider.killed.set()


@pytest.mark.parametrize("percents", [(0, 100), (100, 0)], ids=["legacy", "graph"])
async def test_the_next_router_learns_once(tmp_path: Path, percents: tuple[int, int]) -> None:
    """On the other stack where its own is switched off; nothing of it is left in the stores."""
    provider, store = Provider(), f"sqlite:///{tmp_path}/store.sqlite"
    async with provider.serving() as url:
        more = MORE.format(provider=url, folder=tmp_path, journal="true")
        await killed_after_done(tmp_path, provider, setup(tmp_path, percents[0], more))
        (row,) = execute(store, "SELECT session_id, state FROM graph_checkpoints")
        assert row[1] == "claimed"
        execute(store, "UPDATE graph_checkpoints SET leased_until = 0")  # time passes
        async with deployed(tmp_path, setup(tmp_path, percents[1], more)):
            left = "SELECT 1 FROM graph_checkpoints UNION ALL SELECT 1 FROM exchange_writes"
            await until(lambda: not execute(store, left))
            assert execute(store, "SELECT user_id, text, session_id FROM memories") == [
                ("ann", "likes quinces", row[0])
            ]
            assert len(execute(store, "SELECT 1 FROM turns")) == 2
        assert provider.learns == 2
        assert not (tmp_path / "audit.jsonl").exists()


async def test_without_the_journal_it_is_lost(tmp_path: Path) -> None:
    """As documented: the answer is stored, the facts of that turn are not."""
    provider, store = Provider(), f"sqlite:///{tmp_path}/store.sqlite"
    async with provider.serving() as url:
        more = MORE.format(provider=url, folder=tmp_path, journal="false")
        await killed_after_done(tmp_path, provider, setup(tmp_path, 0, more))
        async with deployed(tmp_path, setup(tmp_path, 0, more)) as place:
            await place.get("/readyz")
        assert execute(store, "SELECT 1 FROM memories") == []
        assert len(execute(store, "SELECT 1 FROM turns")) == 2
