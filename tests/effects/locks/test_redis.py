"""Leases in Redis: what Redis itself is told, and what is said when it is not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from contract.errors import EffectFailed
from effects.locks import LeasedLocks
from effects.locks.redis import RedisLeases

pytestmark = pytest.mark.sockets


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """Give a bare client that sees what the adapter stores."""
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def prefix() -> str:
    """Give a beginning of keys no other test uses."""
    return f"test:{uuid4().hex}:"


@pytest.fixture
async def shared(redis_url: str, prefix: str) -> AsyncIterator[LeasedLocks]:
    """Give locks whose keys no other test uses."""
    locks = LeasedLocks(RedisLeases(redis_url, prefix=prefix))
    yield locks
    await locks.aclose()


async def test_a_lock_in_redis_expires_by_itself(
    shared: LeasedLocks, redis: Redis, prefix: str
) -> None:
    """Redis is told the ttl, so a dead host's lock ends; the next owner gets it."""
    dead = shared.for_exchange()
    assert await dead.acquire("lock", "k", 60.0)
    await dead.abandon()
    assert 59_000 < await redis.pttl(prefix + "k") <= 60_000
    await redis.pexpire(prefix + "k", 0)
    assert await shared.acquire("lock", "k", 60.0)


async def test_a_lost_lock_is_neither_renewed_nor_deleted(
    shared: LeasedLocks, redis: Redis, prefix: str
) -> None:
    """What passed to another owner stays with it."""
    late, heir = shared.for_exchange(), shared.for_exchange()
    assert await late.acquire("lock", "k", 60.0)
    await redis.delete(prefix + "k")
    assert await heir.acquire("lock", "k", 30.0)
    assert not await late.renew("k")
    await late.release("end", "k")
    assert 29_000 < await redis.pttl(prefix + "k") <= 30_000


async def test_a_lock_redis_forgot_is_taken_again(
    shared: LeasedLocks, redis: Redis, prefix: str
) -> None:
    """It came back empty, and nobody has the key: renewing takes it for the whole ttl."""
    assert await shared.acquire("lock", "k", 60.0)
    await redis.delete(prefix + "k")
    assert await shared.renew("k")
    assert 59_000 < await redis.pttl(prefix + "k") <= 60_000


async def test_a_lock_in_redis_is_renewed_while_held(
    shared: LeasedLocks, redis: Redis, prefix: str
) -> None:
    """Its time to live goes up again without anybody asking, after a third of the ttl."""
    assert await shared.acquire("lock", "k", 0.12)
    left = await redis.pttl(prefix + "k")
    async with asyncio.timeout(5.0):
        while (now := await redis.pttl(prefix + "k")) <= left:
            assert now > 0
            left = now


async def test_redis_out_of_reach_is_a_fault(unused_port: int) -> None:
    """No exception of the library leaves the adapter, and no address is in the fault."""
    locks = LeasedLocks(RedisLeases(f"redis://127.0.0.1:{unused_port}/0"))
    with pytest.raises(EffectFailed) as failed:
        await locks.acquire("lock", "k", 60.0)
    assert failed.value.fault.code == "lock_unavailable"
    assert not failed.value.fault.data
    await locks.release("end", "k")
    await locks.aclose()
