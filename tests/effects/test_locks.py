"""Locks: one suite for those of the process and those in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from contract.errors import EffectFailed
from effects.locks import ProcessLocks
from effects.locks_redis import RedisLocks

AnyLocks = ProcessLocks | RedisLocks
Owner = Callable[[], AnyLocks]


@pytest.fixture(params=["process", pytest.param("redis", marks=pytest.mark.sockets)])
async def owner(request: pytest.FixtureRequest) -> AsyncIterator[Owner]:
    """Give a maker of owners that share one set of locks."""
    if request.param == "process":
        root: AnyLocks = ProcessLocks()
    else:
        url: str = request.getfixturevalue("redis_url")
        root = RedisLocks(url, prefix=f"test:{uuid4().hex}:")
    owners: list[AnyLocks] = []

    def another() -> AnyLocks:
        owners.append(root.for_exchange())
        return owners[-1]

    yield another
    for one in [*owners, root]:
        await one.aclose()


async def test_a_free_lock_is_taken(owner: Owner) -> None:
    """Nobody holds it: True."""
    assert await owner().acquire("lock", "msg_lock:1", 60.0)


async def test_a_held_lock_is_refused_at_once(owner: Owner) -> None:
    """Another exchange of the same process is somebody else."""
    first, second = owner(), owner()
    assert await first.acquire("lock", "k", 60.0)
    assert not await second.acquire("lock", "k", 60.0)


async def test_a_lock_is_not_taken_twice_by_its_owner(owner: Owner) -> None:
    """Locks do not nest."""
    locks = owner()
    assert await locks.acquire("lock", "k", 60.0)
    assert not await locks.acquire("lock", "k", 60.0)


async def test_keys_do_not_touch_each_other(owner: Owner) -> None:
    """Two keys are two locks, whatever is in them."""
    first, second = owner(), owner()
    assert await first.acquire("lock", "消息:1", 60.0)
    assert await second.acquire("lock", "消息:2", 60.0)


async def test_a_released_lock_is_free(owner: Owner) -> None:
    """The next one gets it."""
    first, second = owner(), owner()
    assert await first.acquire("lock", "k", 60.0)
    await first.release("end", "k")
    assert await second.acquire("lock", "k", 60.0)


async def test_releasing_what_is_not_held_does_nothing(owner: Owner) -> None:
    """Neither an unknown key nor the lock of another owner is touched."""
    first, second, third = owner(), owner(), owner()
    await first.release("end", "never taken")
    assert await first.acquire("lock", "k", 60.0)
    await second.release("end", "k")
    assert not await third.acquire("lock", "k", 60.0)


async def test_of_many_at_once_one_wins(owner: Owner) -> None:
    """Twenty exchanges ask together, one is told True."""
    answers = await asyncio.gather(*(owner().acquire("lock", "k", 60.0) for _ in range(20)))
    assert sorted(answers) == [False] * 19 + [True]


async def test_closing_lets_go(owner: Owner) -> None:
    """An owner that is closed holds nothing; closing twice is fine."""
    first, second = owner(), owner()
    assert await first.acquire("lock", "k", 60.0)
    await first.aclose()
    await first.aclose()
    assert await second.acquire("lock", "k", 60.0)


@pytest.mark.virtual
async def test_a_lock_in_the_process_outlives_its_ttl_while_its_owner_lives() -> None:
    """It counts as renewed."""
    root = ProcessLocks()
    assert await root.acquire("lock", "k", 60.0)
    await asyncio.sleep(3_600.0)
    assert not await root.for_exchange().acquire("lock", "k", 60.0)


@pytest.mark.virtual
async def test_an_abandoned_lock_of_the_process_ends_after_its_ttl() -> None:
    """A moment before it is held, then it is free; the late owner cannot delete the new one."""
    root = ProcessLocks()
    dead, heir, third = root.for_exchange(), root.for_exchange(), root.for_exchange()
    assert await dead.acquire("lock", "k", 60.0)
    dead.abandon()
    await asyncio.sleep(59.9)
    assert not await heir.acquire("lock", "k", 60.0)
    await asyncio.sleep(0.2)
    assert await heir.acquire("lock", "k", 60.0)
    await dead.release("end", "k")
    assert not await third.acquire("lock", "k", 60.0)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """Give a bare client that sees what the adapter stores."""
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
async def shared(redis_url: str) -> AsyncIterator[RedisLocks]:
    """Give locks whose keys no other test uses."""
    locks = RedisLocks(redis_url, prefix=f"test:{uuid4().hex}:")
    yield locks
    await locks.aclose()


def stored(locks: RedisLocks, key: str) -> str:
    """Tell the key as Redis knows it."""
    return locks._key(key)  # noqa: SLF001 (the tests look behind the adapter's back)


@pytest.mark.sockets
async def test_a_lock_in_redis_expires_by_itself(shared: RedisLocks, redis: Redis) -> None:
    """Redis is told the ttl, so a dead host's lock ends; the next owner gets it."""
    dead = shared.for_exchange()
    assert await dead.acquire("lock", "k", 60.0)
    await dead.abandon()
    assert 59_000 < await redis.pttl(stored(shared, "k")) <= 60_000
    await redis.pexpire(stored(shared, "k"), 0)
    assert await shared.acquire("lock", "k", 60.0)


@pytest.mark.sockets
async def test_a_lost_lock_is_neither_renewed_nor_deleted(shared: RedisLocks, redis: Redis) -> None:
    """What passed to another owner stays with it."""
    late, heir = shared.for_exchange(), shared.for_exchange()
    assert await late.acquire("lock", "k", 60.0)
    await redis.delete(stored(shared, "k"))
    assert await heir.acquire("lock", "k", 30.0)
    assert not await late.renew("k")
    await late.release("end", "k")
    assert 29_000 < await redis.pttl(stored(shared, "k")) <= 30_000
    await heir.aclose()


@pytest.mark.sockets
async def test_a_lock_in_redis_is_renewed_while_held(shared: RedisLocks, redis: Redis) -> None:
    """Its time to live goes up again without anybody asking, after a third of the ttl."""
    assert await shared.acquire("lock", "k", 0.12)
    left = await redis.pttl(stored(shared, "k"))
    async with asyncio.timeout(5.0):
        while (now := await redis.pttl(stored(shared, "k"))) <= left:
            assert now > 0
            left = now


@pytest.mark.sockets
async def test_a_lost_lock_ends_its_renewal(shared: RedisLocks, redis: Redis) -> None:
    """The task says so in the log and is gone."""
    assert await shared.acquire("lock", "k", 0.03)
    await redis.delete(stored(shared, "k"))
    hold = shared._holds["k"]  # noqa: SLF001
    assert hold.renewal
    async with asyncio.timeout(5.0):
        await asyncio.wait([hold.renewal])
    assert hold.renewal.exception() is None


@pytest.mark.sockets
async def test_closing_the_connection_ends_every_renewal(redis_url: str, redis: Redis) -> None:
    """A process that goes leaves no task behind; what it held ends after its ttl."""
    root = RedisLocks(redis_url, prefix=f"test:{uuid4().hex}:")
    assert await root.for_exchange().acquire("lock", "k", 60.0)
    await root.aclose()
    assert 59_000 < await redis.pttl(stored(root, "k")) <= 60_000
    await redis.delete(stored(root, "k"))


@pytest.mark.sockets
async def test_redis_out_of_reach_is_a_fault(unused_port: int) -> None:
    """No exception of the library leaves the adapter, and no address is in the fault."""
    locks = RedisLocks(f"redis://127.0.0.1:{unused_port}/0")
    with pytest.raises(EffectFailed) as failed:
        await locks.acquire("lock", "k", 60.0)
    assert failed.value.fault.code == "lock_unavailable"
    assert not failed.value.fault.data
    await locks.release("end", "k")
    await locks.aclose()
