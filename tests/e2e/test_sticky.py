"""Stickiness on a real deployment: pins outlive edits, restarts and a store that went away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from effects.stores.shared_state import pin_key
from router.routing import lookup
from router.stack import StackName
from tests.support.deployment import Deployment, Setup, deployed
from tests.support.relay import Relay, relayed

pytestmark = pytest.mark.sockets

CHATS = [f"chat {number}" for number in range(6)]


def sticky(pins: str, stack: StackName = "graph", percent: float | None = None) -> Setup:
    """Route by conversation, which freezes conversations unless told otherwise."""
    return Setup(stack=stack, percent=percent, pins=pins, route_key="session_id")


async def turns(place: Deployment, chats: Iterable[str]) -> dict[str, str]:
    """Be a turn of each conversation; returns who was assigned."""
    found = {}
    for chat in chats:
        body = {"message_id": uuid4().hex, "content": "Hello", "chat_id": chat}
        answer = await place.ask(body)
        assert answer.status == 200
        found[chat] = answer.headers["x-cutover-assigned"]
    return found


@pytest.mark.slow
async def test_conversations_keep_their_stack_over_a_restart(tmp_path: Path) -> None:
    """Begun at 50 per cent, on the same stack at 100 after the next start, and it is on record."""
    pins = f"sqlite:///{tmp_path}/pins.sqlite"
    async with deployed(tmp_path, sticky(pins, percent=50)) as place:
        first = await turns(place, CHATS)
        assert set(first.values()) == {"legacy", "graph"}
    async with deployed(tmp_path, sticky(pins)) as place:
        assert await turns(place, CHATS) == first
        assert await turns(place, ["new"]) == {"new": "graph"}
        reasons = [run.reason for run in await place.lines()]
        assert sorted(reasons) == ["percent"] * 7 + ["pinned"] * 6


@pytest.fixture
def chats() -> list[str]:
    """Return new conversations."""
    return [uuid4().hex for _ in range(6)]


@pytest.fixture
async def redis(redis_url: str, chats: list[str]) -> AsyncIterator[Relay]:
    """Return a Redis that can go away and come back; what the test pinned is removed."""
    port = int(redis_url.rpartition(":")[2].partition("/")[0])
    async with relayed(port) as relay:
        yield relay
    async with Redis.from_url(redis_url) as client:
        await client.delete(*(f"cutover:pin:{pin_key('chat', chat)}" for chat in chats))


@pytest.mark.untraced
@pytest.mark.slow
async def test_a_lost_redis_costs_nobody_an_answer(
    tmp_path: Path, redis: Relay, chats: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests are assigned by the hash and `/readyz` says so; back again, the pins hold."""
    monkeypatch.setattr(lookup, "REST_SECONDS", 0.0)
    pins = f"redis://127.0.0.1:{redis.port}/0"
    async with deployed(tmp_path, sticky(pins)) as place:
        assert set((await turns(place, chats[:3])).values()) == {"graph"}
        place.edit(place.watched.path.read_text("utf-8").replace("percent = 100", "percent = 0"))
        await redis.cut()
        assert set((await turns(place, chats[:3])).values()) == {"graph"}, "remembered here"
        assert set((await turns(place, chats[3:])).values()) == {"legacy"}
        ready = await place.get("/readyz")
        assert ready["status"] == "degraded"
        told = "store_unavailable; conversations are assigned by the hash alone"
        assert ready["faults"] == {"pins": told}
        await redis.mend()
        assert set((await turns(place, chats[3:])).values()) == {"legacy"}
        assert (await place.get("/readyz"))["faults"] == {}
    async with deployed(tmp_path, sticky(pins)) as place:
        found = await turns(place, chats)
        assert list(found.values()) == ["graph"] * 3 + ["legacy"] * 3
