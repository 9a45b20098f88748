"""Locks: one suite for those of the process and those several processes share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from effects.stores import LeasedLocks, MemoryLeases, ProcessLocks, ResilientLocks, SqlLeases
from effects.stores.redis import RedisLeases

AnyLocks = ProcessLocks | LeasedLocks | ResilientLocks
Owner = Callable[[], AnyLocks]
KINDS = [
    "process",
    "memory",
    "sqlite",
    "steady",
    pytest.param("redis", marks=pytest.mark.sockets),
]


@pytest.fixture(params=KINDS)
async def owner(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Owner]:
    """Give a maker of owners that share one set of locks."""
    async with AsyncExitStack() as stack:
        root: AnyLocks
        match request.param:
            case "process":
                root = ProcessLocks()
            case "memory":
                root = LeasedLocks(MemoryLeases(time.monotonic))
            case "redis":
                url: str = request.getfixturevalue("redis_url")
                root = LeasedLocks(RedisLeases(url, prefix=f"test:{uuid4().hex}:"))
            case kind:
                leases = await stack.enter_async_context(SqlLeases.open(tmp_path / "locks"))
                over = ResilientLocks.over(leases, time.monotonic)
                root = over if kind == "steady" else LeasedLocks(leases)
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
    """Who holds it is there, so nothing has to be renewed."""
    root = ProcessLocks()
    assert await root.acquire("lock", "k", 60.0)
    await asyncio.sleep(3_600.0)
    assert not await root.for_exchange().acquire("lock", "k", 60.0)
