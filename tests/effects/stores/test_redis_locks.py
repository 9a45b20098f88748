"""Leases in Redis: what Redis itself is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from effects.stores import LeasedLocks
from effects.stores.redis import RedisLeases
from tests.effects.stores.shared import Keys, keys_in_redis
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.sockets


@pytest.fixture
async def keys(redis_url: str) -> AsyncIterator[Keys]:
    """Give what the adapter stores, as a bare client sees it."""
    async with keys_in_redis(redis_url) as room:
        yield room


@pytest.fixture
async def leases(redis_url: str, keys: Keys) -> AsyncIterator[RedisLeases]:
    """Give leases whose keys no other test uses."""
    leases = RedisLeases(redis_url, prefix=keys.prefix)
    yield leases
    await leases.aclose()


@pytest.fixture
async def shared(leases: RedisLeases) -> AsyncIterator[LeasedLocks]:
    """Give locks over them."""
    locks = LeasedLocks(leases)
    yield locks
    await locks.aclose()


async def test_a_lock_in_redis_expires_by_itself(leases: RedisLeases, keys: Keys) -> None:
    """Redis is told the ttl, so a dead host's lock ends; the next owner gets it."""
    assert await leases.hold("k", "dead", 60_000)
    assert 59_000 < await keys.client.pttl(keys.prefix + "k") <= 60_000
    await keys.client.pexpire(keys.prefix + "k", 0)
    assert await leases.hold("k", "heir", 60_000)


async def test_a_lost_lock_is_neither_renewed_nor_deleted(leases: RedisLeases, keys: Keys) -> None:
    """What passed to another owner stays with it."""
    assert await leases.hold("k", "late", 60_000)
    await keys.client.delete(keys.prefix + "k")
    assert await leases.hold("k", "heir", 30_000)
    assert not await leases.hold("k", "late", 60_000)
    await leases.release("k", "late")
    assert 29_000 < await keys.client.pttl(keys.prefix + "k") <= 30_000


async def test_a_lock_redis_forgot_is_taken_again(leases: RedisLeases, keys: Keys) -> None:
    """It came back empty, and nobody has the key: renewing takes it for the whole ttl."""
    assert await leases.hold("k", "owner", 60_000)
    await keys.client.delete(keys.prefix + "k")
    assert await leases.hold("k", "owner", 60_000)
    assert 59_000 < await keys.client.pttl(keys.prefix + "k") <= 60_000


async def test_a_lock_in_redis_is_renewed_while_held(shared: LeasedLocks, keys: Keys) -> None:
    """Its time to live goes up again without anybody asking, after a third of the ttl."""
    assert await shared.acquire("lock", "k", 0.12)
    left = await keys.client.pttl(keys.prefix + "k")
    async with asyncio.timeout(PATIENCE_S):
        while (now := await keys.client.pttl(keys.prefix + "k")) <= left:
            assert now > 0
            left = now
