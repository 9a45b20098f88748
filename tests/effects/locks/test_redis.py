"""Leases in Redis: what Redis itself is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from effects.locks import LeasedLocks
from effects.locks.redis import RedisLeases
from tests.effects.shared import Keys, keys_in_redis
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.sockets


@pytest.fixture
async def keys(redis_url: str) -> AsyncIterator[Keys]:
    """Give what the adapter stores, as a bare client sees it."""
    async with keys_in_redis(redis_url) as room:
        yield room


@pytest.fixture
async def shared(redis_url: str, keys: Keys) -> AsyncIterator[LeasedLocks]:
    """Give locks whose keys no other test uses."""
    locks = LeasedLocks(RedisLeases(redis_url, prefix=keys.prefix))
    yield locks
    await locks.aclose()


async def test_a_lock_in_redis_expires_by_itself(shared: LeasedLocks, keys: Keys) -> None:
    """Redis is told the ttl, so a dead host's lock ends; the next owner gets it."""
    dead = shared.for_exchange()
    assert await dead.acquire("lock", "k", 60.0)
    await dead.abandon()
    assert 59_000 < await keys.client.pttl(keys.prefix + "k") <= 60_000
    await keys.client.pexpire(keys.prefix + "k", 0)
    assert await shared.acquire("lock", "k", 60.0)


async def test_a_lost_lock_is_neither_renewed_nor_deleted(shared: LeasedLocks, keys: Keys) -> None:
    """What passed to another owner stays with it."""
    late, heir = shared.for_exchange(), shared.for_exchange()
    assert await late.acquire("lock", "k", 60.0)
    await keys.client.delete(keys.prefix + "k")
    assert await heir.acquire("lock", "k", 30.0)
    assert not await late.renew("k")
    await late.release("end", "k")
    assert 29_000 < await keys.client.pttl(keys.prefix + "k") <= 30_000


async def test_a_lock_redis_forgot_is_taken_again(shared: LeasedLocks, keys: Keys) -> None:
    """It came back empty, and nobody has the key: renewing takes it for the whole ttl."""
    assert await shared.acquire("lock", "k", 60.0)
    await keys.client.delete(keys.prefix + "k")
    assert await shared.renew("k")
    assert 59_000 < await keys.client.pttl(keys.prefix + "k") <= 60_000


async def test_a_lock_in_redis_is_renewed_while_held(shared: LeasedLocks, keys: Keys) -> None:
    """Its time to live goes up again without anybody asking, after a third of the ttl."""
    assert await shared.acquire("lock", "k", 0.12)
    left = await keys.client.pttl(keys.prefix + "k")
    async with asyncio.timeout(PATIENCE_S):
        while (now := await keys.client.pttl(keys.prefix + "k")) <= left:
            assert now > 0
            left = now
