"""Two routers behind nginx, with one database and one Redis: drained, killed, cut off."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import aiohttp
import pytest

from tests.conftest import reachable
from tests.support.crowd import Heard, Model, ask, client, provider, text_of
from tests.support.databases import postgresql
from tests.support.nginx import Relay, balanced
from tests.support.processes import RouterProcess, share

pytestmark = [pytest.mark.nightly, pytest.mark.sockets]
log = logging.getLogger(__name__)

REDIS = 6379
CLIENTS = 40


@dataclass
class Fleet:
    """Two routers, what balances them, and their connection to Redis."""

    first: RouterProcess
    second: RouterProcess
    url: str
    redis: Relay
    session: aiohttp.ClientSession
    model: Model
    name: str
    """Stands in each id: locks in Redis outlive a test."""
    asked: int = 0

    async def ask(self, url: str, number: int, **fields: str) -> Heard:
        """Ask for an item."""
        body = {"message_id": f"{self.name}-{number}", "content": f"Tell of item {number}"}
        return await ask(self.session, f"{url}/chat/sse", {**body, **fields})

    async def load(self, over: asyncio.Event) -> dict[int, Heard]:
        """Ask through the balancer, many at once, until `over`."""
        heard = dict[int, Heard]()

        async def one() -> None:
            while not over.is_set():
                self.asked += 1
                number = self.asked
                heard[number] = await self.ask(self.url, number)

        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(one())
        return heard


@asynccontextmanager
async def fleet(folder: Path) -> AsyncIterator[Fleet]:
    """Open all of it."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", REDIS)
        writer.close()
    except OSError:
        reachable("Redis", ok=False)
    model = Model()
    with postgresql() as database:
        async with provider(model, 60) as sim, Relay(REDIS) as redis, client() as session:
            tables = {
                "stores": {"database": database, "redis": f"redis://127.0.0.1:{redis.port}/0"},
                "tools": ["tests.support.breaking:note"],
                "workers": {"deploy": ["sh", "-c", "echo ran >> deployed"]},
                "flows": {
                    "chat": share(50.0, route_key="user_id", sticky="chat_id"),
                    "ops": share(50.0),
                },
            }
            environment = {"OPENAI_BASE_URL": sim.base_url, "NOTES": str(folder / "notes")}
            async with (
                RouterProcess(folder, tables, environment=environment) as first,
                RouterProcess(folder, tables, environment=environment) as second,
                balanced(folder, [first.port, second.port]) as url,
            ):
                yield Fleet(first, second, url, redis, session, model, uuid4().hex[:12])


def whole(heard: Heard, number: int) -> bool:
    """Whether a client heard all that there is to say of an item."""
    if heard.status != 200 or heard.broken:
        return False
    said, end = heard.events[-2:]
    return (said["step"], said.get("content"), end["step"]) == ("SUCCESS", text_of(number), "END")


async def test_draining_loses_nothing_and_a_kill_only_its_own_streams(tmp_path: Path) -> None:
    """One router stops under load, and starts again; then the other one is killed."""
    async with fleet(tmp_path) as two:
        over = asyncio.Event()
        loading = asyncio.create_task(two.load(over))
        await asyncio.sleep(5)
        assert await two.first.stop() == 0
        await asyncio.sleep(3)
        over.set()
        drained = await loading
        assert {number for number, heard in drained.items() if not whole(heard, number)} == set()
        assert max(two.model.calls.values()) == 1
        served = Counter(heard.headers["x-upstream"].split(", ")[-1] for heard in drained.values())
        assert min(served.values()) > 10
        await two.first.start()
        over.clear()
        loading = asyncio.create_task(two.load(over))
        await asyncio.sleep(5)
        await two.second.kill()
        await asyncio.sleep(5)
        over.set()
        killed = await loading
        dead = f"127.0.0.1:{two.second.port}"
        lost = {number: heard for number, heard in killed.items() if not whole(heard, number)}
        for number, heard in lost.items():
            upstream = heard.headers["x-upstream"].split(", ")
            # What had no answer yet, nginx asks the other one: the lock is the killed one's still.
            asked_again = (heard.status, upstream[0]) == (409, dead) and len(upstream) == 2
            assert asked_again or (heard.broken and upstream == [dead]), heard
            assert text_of(number).startswith(
                next((one["content"] for one in reversed(heard.events) if "content" in one), "")
            )
        log.info(
            "drained=%d by=%s killed=%d lost=%d of which 409=%d",
            *(len(drained), dict(served), len(killed), len(lost)),
            sum(heard.status == 409 for heard in lost.values()),
        )
        assert 0 < len(lost) <= CLIENTS
        await two.second.start()


async def test_pins_and_pauses_are_shared(tmp_path: Path) -> None:
    """A conversation stays with its stack in either router; a pause outlives its router."""
    async with fleet(tmp_path) as two:
        routers = (two.first, two.second)
        for conversation in range(20):
            chosen = set[str]()
            for turn in range(4):
                number = conversation * 4 + turn
                fields = {"chat_id": f"c{conversation}", "user_id": f"u{number}"}
                heard = await two.ask(routers[turn % 2].url, number, **fields)
                assert whole(heard, number)
                chosen.add(heard.headers["x-cutover-assigned"])
            assert len(chosen) == 1
        questions = []
        for number in range(6):
            body = {"session_id": f"s{number}", "input": "please deploy the new version"}
            asked = await ask(two.session, f"{two.second.url}/ops/react", body)
            questions += [one["approval_id"] for one in asked.events if "approval_id" in one]
        assert len(questions) == 6
        await two.second.kill()
        for question in questions:
            decision = {"approval_id": question, "approved": True, "by": "ada"}
            rest = await ask(two.session, f"{two.url}/ops/resume", decision)
            assert rest.events[-1] == {"status": "completed"}, rest
            again = await ask(two.session, f"{two.first.url}/ops/resume", decision)
            assert again.status == 409
        assert (tmp_path / "deployed").read_text().split() == ["ran"] * 6


AWAY_SECONDS = 20.0
LONGEST_SECONDS = 30.0
"""What a request may take: it calls Redis twice, at most a second and some retries each time."""


@pytest.mark.parametrize("silent", [False, True])
async def test_nothing_hangs_while_redis_is_away(tmp_path: Path, silent: bool) -> None:
    """A message is locked by its process alone then, and by all of them before and after."""
    async with fleet(tmp_path) as two:

        async def twice(number: int, *routers: RouterProcess) -> list[int]:
            asking = [two.ask(one.url, number) for one in routers]
            return sorted(heard.status for heard in await asyncio.gather(*asking))

        assert await twice(1_000_000, two.first, two.second) == [200, 409]
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        loading = asyncio.create_task(two.load(over))
        await asyncio.sleep(3)
        await two.redis.cut(silent=silent)
        back = loop.time() + AWAY_SECONDS
        assert await twice(1_000_001, two.first, two.second) == [200, 200]
        assert await twice(1_000_002, two.first, two.first) == [200, 409]
        await asyncio.sleep(back - loop.time())
        await two.redis.restore()
        await asyncio.sleep(3)
        over.set()
        heard = await loading
        assert {number for number, one in heard.items() if not whole(one, number)} == set()
        assert await twice(1_000_003, two.first, two.second) == [200, 409]
        alone = two.first.log.count("lock held in this process alone")
        longest = max(one.ended - one.began for one in heard.values())
        log.info(
            "requests=%d silent=%s longest=%.1f s locked by one process alone=%d",
            *(len(heard), silent, longest, alone),
        )
        assert longest < LONGEST_SECONDS
        assert alone
        assert max(n for (item, _), n in two.model.calls.items() if item < 1_000_000) == 1
