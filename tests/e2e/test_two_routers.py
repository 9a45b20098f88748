"""Two routers on one Redis and one PostgreSQL, with streams open while parts of them go.

Sized by `CUTOVER_STREAMS` (open on each router) and `CUTOVER_OUTAGE` (seconds): 150 and 20 are what
docs/scaling.md says was run.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import aiohttp
import psycopg
import pytest

from loadtests.simulator import Served, running
from tests.e2e.processes import RouterProcess, router_process
from tests.e2e.redis_server import own_redis
from tests.e2e.test_redis_away import MORE, Held
from tests.support.companion_client import hitl_id, picture, post
from tests.support.deployment import PLANTED_KEY, Answer, Setup, first_turn
from tests.support.patience import PATIENCE_S
from tests.support.relay import Relay, relayed

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.untraced]

STREAMS = int(os.environ.get("CUTOVER_STREAMS", "12"))
OUTAGE = float(os.environ.get("CUTOVER_OUTAGE", "0.5"))
WHOLE = ("ACCEPT", "START_REPLY", "SEND", "SUCCESS", "END")


@dataclass
class Fleet:
    """Two routers of one configuration, their provider, and what they share."""

    folder: Path
    provider: Served
    setup: Setup
    redis: Relay
    postgres: Relay
    dsn: str
    session: aiohttp.ClientSession
    asked: dict[str, asyncio.Task[str]] = field(default_factory=dict)
    started: ClassVar[int] = 0

    @asynccontextmanager
    async def router(self) -> AsyncIterator[RouterProcess]:
        """Start a router."""
        Fleet.started += 1
        own = self.folder / f"router {Fleet.started}"
        own.mkdir()
        async with router_process(own, self.provider.base_url, self.setup) as router:
            yield router

    async def open(self, router: RouterProcess, name: str) -> list[str]:
        """Open streams on a router, and see the provider answer them; returns their names."""
        names = [f"{name} {number}" for number in range(STREAMS)]
        due = int(str(self.provider.ledger.counts()["total"])) + STREAMS
        for one in names:
            self.asked[one] = asyncio.create_task(self._stream(router, one))
        async with asyncio.timeout(PATIENCE_S):
            await self.provider.ledger.until("total", due)
        return names

    async def _stream(self, router: RouterProcess, name: str) -> str:
        """Read a stream to its end, whatever that is."""
        try:
            answer = await router.ask(self.session, first_turn(name, "steady"))
        except aiohttp.ClientError:
            return "cut"
        return "whole" if tuple(answer.steps) == WHOLE else f"{answer.status} {answer.steps}"

    async def ended(self, names: list[str]) -> Counter[str]:
        """Return how streams have ended."""
        async with asyncio.timeout(PATIENCE_S):
            return Counter(await asyncio.gather(*(self.asked[name] for name in names)))

    async def turns(self) -> Counter[str]:
        """Return how many turns each conversation has in the store."""
        query = "SELECT chat_id, count(*) FROM turns GROUP BY chat_id"
        async with await psycopg.AsyncConnection.connect(self.dsn) as connection:
            found = await connection.execute(query)
            return Counter({str(chat): int(count) for chat, count in await found.fetchall()})


@asynccontextmanager
async def fleet(folder: Path, dsn: str) -> AsyncIterator[Fleet]:
    """Start what two routers share."""
    async with AsyncExitStack() as opened:
        provider = await opened.enter_async_context(running(api_key=PLANTED_KEY))
        server = await opened.enter_async_context(own_redis(folder))
        redis = await opened.enter_async_context(relayed(urlsplit(server.url).port or 0))
        parts = urlsplit(dsn)
        postgres = await opened.enter_async_context(relayed(parts.port or 5432))
        user, _, _ = parts.netloc.rpartition("@")
        shared = parts._replace(netloc=f"{user}@127.0.0.1:{postgres.port}").geturl()
        address = f"redis://127.0.0.1:{redis.port}/0"
        setup = Setup(
            more=MORE,
            environ={"FLEET_STORE": shared},
            conversations="env:FLEET_STORE",
            others="env:FLEET_STORE",
            checkpoints="env:FLEET_STORE",
            locks=address,
            pins=address,
            drain_seconds=PATIENCE_S,
        )
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        session = await opened.enter_async_context(aiohttp.ClientSession(connector=connector))
        yield Fleet(folder, provider, setup, redis, postgres, dsn, session)


async def test_streams_go_on_while_what_they_share_is_away_and_routers_come_and_go(
    tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only those on a router that is killed break; what is stored is whole, pauses included."""
    monkeypatch.setattr("loadtests.simulator.player.ClientPresence", Held)
    async with fleet(tmp_path, dsn) as it, it.router() as one:
        Held.let_go = asyncio.Event()
        async with it.router() as two:
            names = [*await it.open(one, "one"), *await it.open(two, "two")]
            for away in (it.redis, it.postgres):
                await away.cut()
                await asyncio.sleep(OUTAGE)
                assert not any(it.asked[name].done() for name in names)
                await away.mend()
            two.child.terminate()
            await two.refuses()
            Held.let_go.set()
            assert await it.ended(names) == {"whole": 2 * STREAMS}
            assert await two.child.wait() == 0
        turns = await it.turns()
        assert turns == {f"chat {name}": 2 for name in names}
        await _one_is_killed(it, one)


async def _one_is_killed(it: Fleet, one: RouterProcess) -> None:
    """A router is killed: another one's streams, and its own paused exchange, go on."""
    image = await post(it.session, f"{one.url}/chat/image", picture())
    hitl = hitl_id(image)
    Held.let_go = asyncio.Event()
    async with it.router() as two:
        lost, kept = await it.open(one, "lost"), await it.open(two, "kept")
        one.child.kill()
        await one.child.wait()
        assert await it.ended(lost) == {"cut": STREAMS}
        answer = {"hitl_id": hitl, "action": "edit", "data": {"memory_1": "likes tea"}}
        assert (await post(it.session, f"{two.url}/hitl/respond", answer)).status == 200
        rest = await post(it.session, f"{two.url}/hitl/continue", {"hitl_id": hitl})
        assert rest.events[-1] == {"status": "completed"}
        Held.let_go.set()
        assert await it.ended(kept) == {"whole": STREAMS}
        turns = await it.turns()
        assert {f"chat {name}": turns[f"chat {name}"] for name in kept} == {
            f"chat {name}": 2 for name in kept
        }
        again: Answer = await two.ask(it.session, first_turn("lost 0"))
        assert again.status in {200, 409}, "its lock may still be held"
