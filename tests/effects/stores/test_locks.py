"""Locks: one suite for all kinds, then what leases, Redis and the loss of a server add."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from uuid import uuid4

import pytest

from effects.stores import LeasedLocks, Leases, MemoryLeases, ProcessLocks, SqlLeases
from effects.stores.redis import RedisLeases
from tests.effects.stores.shared import KINDS, Makers, Shared, opened
from tests.support.clocks import now

AnyLocks = ProcessLocks | LeasedLocks
Owner = Callable[[], AnyLocks]
FAULT = "lock_unavailable; messages are locked within each process alone"


def no_renewals() -> bool:
    """Whether no task renews a lock."""
    return not any(task.get_name().startswith("renewal") for task in asyncio.all_tasks())


@pytest.fixture(params=["process", *KINDS])
async def owner(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Owner]:
    """Return a function that makes owners of one set of locks, in one process and another."""
    async with AsyncExitStack() as stack:
        leases: Leases
        match request.param:
            case "process" | "memory":
                leases = MemoryLeases(time.monotonic)
            case "redis":
                url: str = request.getfixturevalue("redis_url")
                leases = RedisLeases(url, prefix=f"test:{uuid4().hex}:")
            case _:
                leases = await stack.enter_async_context(SqlLeases.open(tmp_path / "locks"))
        roots: list[AnyLocks] = [LeasedLocks.over(leases) for _ in range(2)]
        if request.param == "process":
            roots = [ProcessLocks()]
        owners: list[AnyLocks] = []

        def another() -> AnyLocks:
            owners.append(roots[len(owners) % len(roots)].for_exchange())
            return owners[-1]

        yield another
        assert [root.fault for root in roots] == [None] * len(roots)
        for one in [*owners, *roots]:
            await one.aclose()


async def test_a_held_lock_is_refused_at_once(owner: Owner) -> None:
    """To another exchange, of this process or another, and to its owner: locks do not nest."""
    first, second = owner(), owner()
    assert await first.acquire("lock", "msg_lock:1", 60.0)
    assert not await second.acquire("lock", "msg_lock:1", 60.0)
    assert not await first.acquire("lock", "msg_lock:1", 60.0)


async def test_keys_do_not_touch_each_other(owner: Owner) -> None:
    """Two keys are two locks, whatever is in them."""
    first, second = owner(), owner()
    assert await first.acquire("lock", "消息:1", 60.0)
    assert await second.acquire("lock", "消息:2", 60.0)


async def test_releasing_frees_the_owners_lock_alone(owner: Owner) -> None:
    """Neither an unknown key nor the lock of another owner is touched."""
    first, second, third = owner(), owner(), owner()
    await first.release("end", "never taken")
    assert await first.acquire("lock", "k", 60.0)
    await second.release("end", "k")
    assert not await third.acquire("lock", "k", 60.0)
    await first.release("end", "k")
    assert await second.acquire("lock", "k", 60.0)


async def test_of_many_at_once_one_wins(owner: Owner) -> None:
    """Of twenty exchanges that acquire together, one gets True."""
    answers = await asyncio.gather(*(owner().acquire("lock", "k", 60.0) for _ in range(20)))
    assert sorted(answers) == [False] * 19 + [True]


async def test_closing_releases(owner: Owner) -> None:
    """An owner that is closed holds nothing; closing twice is fine."""
    first, second = owner(), owner()
    assert await first.acquire("lock", "k", 60.0)
    await first.aclose()
    await first.aclose()
    assert await second.acquire("lock", "k", 60.0)


@pytest.mark.virtual
async def test_a_lock_in_the_process_outlives_its_ttl_while_its_owner_lives() -> None:
    """Its owner is in the process, so nothing has to be renewed."""
    root = ProcessLocks()
    assert await root.acquire("lock", "k", 60.0)
    await asyncio.sleep(3_600.0)
    assert not await root.for_exchange().acquire("lock", "k", 60.0)


@pytest.mark.virtual
async def test_a_held_lock_outlives_its_ttl() -> None:
    """It is renewed for as long as its owner holds it, then it is free."""
    leases = MemoryLeases(now)
    root = LeasedLocks.over(leases)
    owner, other = root.for_exchange(), root.for_exchange()
    assert await owner.acquire("lock", "k", 60.0)
    await asyncio.sleep(3_600.0)
    assert not await other.acquire("lock", "k", 60.0)
    await owner.release("end", "k")
    assert leases.held == {}
    assert no_renewals()


@pytest.mark.virtual
async def test_a_lost_lock_ends_its_renewal() -> None:
    """Its new owner keeps it, and the renewal ends."""
    leases = MemoryLeases(now)
    late = LeasedLocks.over(leases)
    assert await late.acquire("lock", "k", 60.0)
    leases.held["k"] = ("another's", now() + 3_600.0)
    await asyncio.sleep(21.0)
    assert no_renewals()
    await late.release("end", "k")
    assert leases.held["k"][0] == "another's"


@pytest.mark.virtual
async def test_a_failed_renewal_is_tried_again() -> None:
    """Leases out of reach for less than the ttl are still held."""
    leases = MemoryLeases(now)
    locks = LeasedLocks.over(leases)
    assert await locks.acquire("lock", "k", 60.0)
    leases.away = True
    await asyncio.sleep(30.0)
    leases.away = False
    await asyncio.sleep(3_600.0)
    assert leases.held["k"][1] > now()
    await locks.release("end", "k")


class Deaf(MemoryLeases):
    """Leases whose renewals take a second and swallow their cancellation."""

    async def hold(self, key: str, token: str, ms: int) -> bool:
        """Answer in the end, whatever comes between."""
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(1.0 if key in self.held else 0.0)
        return await super().hold(key, token, ms)


@pytest.mark.virtual
@pytest.mark.parametrize(("leases", "after"), [(MemoryLeases, 0.0), (Deaf, 20.5)])
async def test_closing_the_first_owner_ends_every_renewal(
    leases: type[MemoryLeases], after: float
) -> None:
    """Also one that swallows its cancellation; what was held ends after its ttl."""
    stored = leases(now)
    root = LeasedLocks.over(stored)
    assert await root.for_exchange().acquire("lock", "k", 60.0)
    await asyncio.sleep(after)
    closed_at = now()
    await root.aclose()
    assert no_renewals()
    assert now() == closed_at
    assert stored.held["k"][1] >= now() + 60.0 - after


@pytest.mark.virtual
async def test_closing_with_the_leases_out_of_reach_is_fine() -> None:
    """The lock ends by itself."""
    leases = MemoryLeases(now)
    locks = LeasedLocks.over(leases)
    assert await locks.acquire("lock", "k", 60.0)
    leases.away = True
    await locks.aclose()
    assert no_renewals()


@pytest.fixture(params=KINDS)
async def leases(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shared[Leases]]:
    """Return empty leases of each kind."""
    makers = Makers[Leases](MemoryLeases, SqlLeases.open, RedisLeases)
    async with opened(request, tmp_path / "locks", makers) as stores:
        yield stores


async def test_a_lease_ends_by_itself(leases: Shared[Leases]) -> None:
    """So a killed process's lock ends; what passed to another owner stays with it."""
    assert await leases.store.hold("k", "dead", 3_600_000)
    await leases.lapse(3_000.0)
    assert not await leases.other.hold("k", "heir", 3_600_000)
    await leases.lapse(600.0)
    assert await leases.other.hold("k", "heir", 3_600_000)
    assert not await leases.store.hold("k", "dead", 3_600_000)
    await leases.store.release("k", "dead")
    assert not await leases.store.hold("k", "third", 3_600_000)
    await leases.other.release("k", "heir")
    assert await leases.store.hold("k", "third", 3_600_000)


async def test_a_lease_is_extended_from_now_on(leases: Shared[Leases]) -> None:
    """Or taken again for the whole ttl, where the store has lost it, and no token has the key."""
    for _ in range(3):
        assert await leases.store.hold("k", "owner", 3_600_000)
        await leases.lapse(3_000.0)
        assert not await leases.other.hold("k", "heir", 3_600_000)
    await leases.lapse(600.0)
    assert await leases.store.hold("k", "owner", 3_600_000)
    await leases.lapse(3_000.0)
    assert not await leases.other.hold("k", "heir", 3_600_000)


def processes(leases: MemoryLeases) -> tuple[LeasedLocks, LeasedLocks]:
    """Return the locks of two processes that share leases."""
    return LeasedLocks.over(leases, now), LeasedLocks.over(leases, now)


@pytest.mark.virtual
async def test_while_leases_are_out_of_reach_a_process_locks_for_itself() -> None:
    """The first of two equal requests goes on, the second is refused; the fault is reported."""
    leases = MemoryLeases(now)
    here, there = processes(leases)
    leases.away = True
    owner, elsewhere = here.for_exchange(), there.for_exchange()
    assert await owner.acquire("lock", "k", 60.0)
    assert not await here.for_exchange().acquire("lock", "k", 60.0)
    assert here.fault == FAULT
    assert await elsewhere.acquire("lock", "k", 60.0), "the other process cannot be known"
    for one in (owner, elsewhere):
        with pytest.raises(Exception, match="lock_unavailable"):
            await one.release("end", "k")
        assert await one.for_exchange().acquire("lock", "k", 60.0), "the process has released it"
    leases.away = False
    await here.aclose()
    await there.aclose()


@pytest.mark.virtual
async def test_after_a_failure_calls_are_skipped_for_a_moment() -> None:
    """Requests do not each wait for a time limit; one a second finds out."""
    leases = MemoryLeases(now)
    locks = LeasedLocks.over(leases, now)
    leases.away = True
    for number in range(10):
        assert await locks.for_exchange().acquire("lock", f"k{number}", 60.0)
    assert leases.calls == 1
    await asyncio.sleep(1.0)
    leases.away = False
    assert await locks.acquire("lock", "again", 60.0)
    assert leases.calls == 2
    assert locks.fault is None
    await locks.aclose()


@pytest.mark.virtual
@pytest.mark.parametrize("lost", ["out of reach", "empty"])
async def test_a_lock_is_shared_once_the_leases_are_back(lost: str) -> None:
    """At the next renewal; also when Redis comes back without a disk, and has forgotten all."""
    leases = MemoryLeases(now)
    here, there = processes(leases)
    leases.away = lost == "out of reach"
    owner = here.for_exchange()
    assert await owner.acquire("lock", "k", 60.0)
    leases.away = False
    leases.held.clear()
    await asyncio.sleep(20.5)
    assert here.fault is None, "the renewal reported"
    assert not await there.acquire("lock", "k", 60.0)
    await owner.release("end", "k")
    assert leases.held == {}
    assert await there.acquire("lock", "k", 60.0)
    await there.aclose()
