"""Leases: they end after their ttl, are renewed while held, and pass on when lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from contract.errors import EffectFailed
from effects.stores import LeasedLocks, MemoryLeases, SqlLeases


def loop_time() -> float:
    """Tell the time of the loop, which jumps in virtual time."""
    return asyncio.get_running_loop().time()


def no_renewals() -> bool:
    """Tell whether nothing renews any more."""
    return not any(task.get_name().startswith("renewal") for task in asyncio.all_tasks())


@pytest.mark.virtual
async def test_a_held_lock_outlives_its_ttl() -> None:
    """It is renewed for as long as its owner holds it, then it is free."""
    leases = MemoryLeases(loop_time)
    root = LeasedLocks(leases)
    owner, other = root.for_exchange(), root.for_exchange()
    assert await owner.acquire("lock", "k", 60.0)
    await asyncio.sleep(3_600.0)
    assert not await other.acquire("lock", "k", 60.0)
    await owner.release("end", "k")
    assert leases.held == {}
    assert no_renewals()


@pytest.mark.virtual
async def test_the_lock_of_a_dead_owner_ends_after_its_ttl() -> None:
    """A moment before it is held, then it is free; the late owner cannot delete the new one."""
    leases = MemoryLeases(loop_time)
    heir = LeasedLocks(leases)
    assert await leases.hold("k", "dead", 60_000)
    await asyncio.sleep(59.9)
    assert not await heir.acquire("lock", "k", 60.0)
    await asyncio.sleep(0.2)
    assert await heir.acquire("lock", "k", 60.0)
    await leases.release("k", "dead")
    assert "k" in leases.held
    await heir.aclose()


@pytest.mark.virtual
async def test_a_lost_lock_ends_its_renewal() -> None:
    """Whoever has it now keeps it, and nothing goes on in vain."""
    leases = MemoryLeases(loop_time)
    late = LeasedLocks(leases)
    assert await late.acquire("lock", "k", 60.0)
    leases.held["k"] = ("somebody else's", loop_time() + 3_600.0)
    await asyncio.sleep(21.0)
    assert no_renewals()
    await late.release("end", "k")
    assert leases.held["k"][0] == "somebody else's"


@pytest.mark.virtual
async def test_a_failed_renewal_is_tried_again() -> None:
    """A keeper that was away for less than the ttl has noticed nothing."""
    leases = MemoryLeases(loop_time)
    locks = LeasedLocks(leases)
    assert await locks.acquire("lock", "k", 60.0)
    leases.away = True
    await asyncio.sleep(30.0)
    leases.away = False
    await asyncio.sleep(3_600.0)
    assert leases.held["k"][1] > loop_time()
    await locks.release("end", "k")


@pytest.mark.virtual
async def test_closing_the_first_owner_ends_every_renewal() -> None:
    """A process that goes leaves no task behind; what it held ends after its ttl."""
    leases = MemoryLeases(loop_time)
    root = LeasedLocks(leases)
    assert await root.for_exchange().acquire("lock", "k", 60.0)
    await root.aclose()
    assert no_renewals()
    assert leases.held["k"][1] == loop_time() + 60.0


class Deaf(MemoryLeases):
    """Leases whose renewals take a second and do not hear that they are to end."""

    async def hold(self, key: str, token: str, ms: int) -> bool:
        """Answer in the end, whatever comes between."""
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(1.0 if key in self.held else 0.0)
        return await super().hold(key, token, ms)


@pytest.mark.virtual
async def test_a_renewal_that_swallows_its_cancellation_ends_all_the_same() -> None:
    """A client may that has its answer in hand: closing must not wait for rounds without end."""
    leases = Deaf(loop_time)
    root = LeasedLocks(leases)
    assert await root.for_exchange().acquire("lock", "k", 60.0)
    await asyncio.sleep(20.5)
    closed_at = loop_time()
    await root.aclose()
    assert no_renewals()
    assert loop_time() == closed_at


@pytest.mark.virtual
async def test_closing_with_the_keeper_away_is_fine() -> None:
    """The lock ends by itself."""
    leases = MemoryLeases(loop_time)
    locks = LeasedLocks(leases)
    assert await locks.acquire("lock", "k", 60.0)
    leases.away = True
    await locks.aclose()
    assert no_renewals()


async def test_sqlite_ends_leases_by_the_wall_clock_over_openings(tmp_path: Path) -> None:
    """A killed process's lock is held until its ttl is over, whoever opens the file then."""
    now = 1_000.0
    wall: Callable[[], float] = lambda: now  # noqa: E731 (a clock the test moves)
    async with SqlLeases.open(tmp_path / "locks", wall) as killed:
        assert await killed.hold("k", "killed", 60_000)
        assert await killed.hold("k", "killed", 60_000)
    now = 1_059.9
    async with SqlLeases.open(tmp_path / "locks", wall) as next_one:
        assert not await next_one.hold("k", "next", 60_000)
        now = 1_060.0
        assert await next_one.hold("k", "next", 60_000)
        await next_one.release("k", "killed")
        assert not await next_one.hold("k", "third", 60_000)


async def test_sqlite_that_is_closed_is_a_fault(tmp_path: Path) -> None:
    """The code is that of locks, whatever the file could not do."""
    async with SqlLeases.open(tmp_path / "locks") as leases:
        await leases.aclose()
        with pytest.raises(EffectFailed) as failed:
            await leases.hold("k", "token", 60_000)
    assert failed.value.fault.code == "lock_unavailable"
