"""Locks: one suite for the process and for Redis."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from cutover import Exchange
from effects import locks
from effects.world import EffectSettings, World, open_world, use
from tests.conftest import reachable
from tests.effects.conftest import REDIS, taped

MEMORY = EffectSettings(database="sqlite+aiosqlite://")


@pytest.fixture(params=["process", "redis", "redis is away"])
async def opened(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A world whose locks are in this process, in Redis, or should be in a Redis that is away."""
    url = {"process": None, "redis": REDIS, "redis is away": "redis://127.0.0.1:1/0"}
    settings = EffectSettings(database=MEMORY.database, redis=url[request.param])
    async with open_world(settings) as world:
        if request.param == "redis":
            await redis_of(world)
        yield world


async def redis_of(world: World) -> Redis:
    """Return a world's Redis, which answers."""
    assert world.redis is not None
    try:
        await world.redis.ping()
    except RedisError:
        reachable("Redis", ok=False)
    return world.redis


def fresh() -> str:
    """Return the name of a lock that no other test has."""
    return f"msg_lock:{uuid4().hex}"


@pytest.mark.usefixtures("opened")
async def test_a_lock_has_one_owner() -> None:
    """The second asks in vain until the owner, and no other, has released it."""
    name = fresh()
    token = await locks.acquire(name, 60.0)
    assert token
    assert await locks.acquire(name, 60.0) is None
    assert not await locks.release(name, "another")
    assert await locks.release(name, token)
    assert not await locks.release(name, token)


@pytest.mark.usefixtures("opened")
async def test_of_many_at_once_one_gets_the_lock() -> None:
    """Ten tasks, one token."""
    name = fresh()
    tokens = await asyncio.gather(*(locks.acquire(name, 60.0) for _ in range(10)))
    (token,) = [one for one in tokens if one]
    assert await locks.release(name, token)


@pytest.mark.usefixtures("opened")
async def test_the_end_of_an_exchange_releases_what_a_stack_left_locked() -> None:
    """Both runs read the same token from the tape; the lock is free after the exchange."""
    name = fresh()
    async with Exchange() as exchange:
        with taped(exchange):
            token = await locks.acquire(name, 60.0)
        with taped(exchange, "play"):
            assert await locks.acquire(name, 60.0) == token
        assert await locks.acquire(name, 60.0) is None
    again = await locks.acquire(name, 60.0)
    assert again
    assert await locks.release(name, again)


@pytest.mark.usefixtures("opened")
async def test_the_end_of_an_exchange_leaves_the_next_owners_lock_alone() -> None:
    """A lock released in time may be another exchange's when the first one closes."""
    name = fresh()
    async with Exchange() as exchange:
        with taped(exchange):
            token = await locks.acquire(name, 60.0)
            assert token
            assert await locks.release(name, token)
        following = await locks.acquire(name, 60.0)
        assert following
    assert await locks.release(name, following)


@pytest.mark.virtual
async def test_a_lock_of_the_process_lapses() -> None:
    """After its time another may take it, and its former owner cannot release it."""
    async with open_world(MEMORY) as world:
        first = await locks.acquire("a", 60.0)
        assert first
        await asyncio.sleep(59.9)
        assert not await locks.acquire("a", 60.0)
        await asyncio.sleep(0.2)
        assert not await locks.release("a", first)
        assert await locks.acquire("a", 60.0)
        assert not await locks.release("a", first)
        await asyncio.sleep(60.1)
        assert await locks.acquire("b", 1.0)
        assert list(world.held) == ["b"]


async def test_a_lock_in_redis_is_seen_by_other_processes_and_lapses() -> None:
    """Another process has nothing of this one's but the Redis; the key has its time limit."""
    name = fresh()
    async with open_world(EffectSettings(database=MEMORY.database, redis=REDIS)) as world:
        redis = await redis_of(world)
        token = await locks.acquire(name, 60.0)
        assert token
        assert 59_000 < await redis.pttl(name) <= 60_000
        with use(replace(world, held={})):
            assert await locks.acquire(name, 60.0) is None
        await redis.delete(name)  # as when its time is up
        with use(replace(world, held={})):
            other = await locks.acquire(name, 60.0)
            assert other
        assert not await locks.release(name, token)
        assert await redis.get(name) == other
        await redis.delete(name)
