"""Locks whose keeper goes away and comes back: requests go on, and the fault is told."""

from __future__ import annotations

import asyncio

import pytest

from effects.stores import MemoryLeases, ResilientLocks

pytestmark = pytest.mark.virtual

FAULT = "lock_unavailable; messages are locked within each process alone"


def loop_time() -> float:
    """Tell the time of the loop, which jumps in virtual time."""
    return asyncio.get_running_loop().time()


def processes(leases: MemoryLeases) -> tuple[ResilientLocks, ResilientLocks]:
    """Make the locks of two processes that share one keeper."""
    return ResilientLocks.over(leases, loop_time), ResilientLocks.over(leases, loop_time)


async def test_two_processes_share_a_lock() -> None:
    """What one holds the other cannot take, and nobody says anything of a fault."""
    here, there = processes(MemoryLeases(loop_time))
    owner = here.for_exchange()
    assert await owner.acquire("lock", "k", 60.0)
    assert not await there.for_exchange().acquire("lock", "k", 60.0)
    await owner.release("end", "k")
    assert await there.acquire("lock", "k", 60.0)
    assert (here.fault, there.fault) == (None, None)
    await there.aclose()


async def test_with_the_keeper_away_a_process_locks_for_itself() -> None:
    """The first of two equal requests goes on, the second is refused; the fault is told."""
    leases = MemoryLeases(loop_time)
    here, there = processes(leases)
    leases.away = True
    owner, elsewhere = here.for_exchange(), there.for_exchange()
    assert await owner.acquire("lock", "k", 60.0)
    assert not await here.for_exchange().acquire("lock", "k", 60.0)
    assert here.fault == FAULT
    assert await elsewhere.acquire("lock", "k", 60.0), "nobody can know of the other process"
    for one in (owner, elsewhere):
        with pytest.raises(Exception, match="lock_unavailable"):
            await one.release("end", "k")
        assert await one.for_exchange().acquire("lock", "k", 60.0), "the process has let go"
    leases.away = False
    await here.aclose()
    await there.aclose()


async def test_a_keeper_that_failed_is_left_in_peace_for_a_moment() -> None:
    """Requests do not each wait for a time limit; one a second finds out."""
    leases = MemoryLeases(loop_time)
    locks = ResilientLocks.over(leases, loop_time)
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


async def test_what_was_taken_meanwhile_is_shared_when_the_keeper_is_back() -> None:
    """At the next renewal, so that another process cannot take it any more."""
    leases = MemoryLeases(loop_time)
    here, there = processes(leases)
    leases.away = True
    owner = here.for_exchange()
    assert await owner.acquire("lock", "k", 60.0)
    leases.away = False
    await asyncio.sleep(20.5)
    assert here.fault is None, "the renewal told"
    assert not await there.acquire("lock", "k", 60.0)
    await owner.release("end", "k")
    assert await there.acquire("lock", "k", 60.0)
    await there.aclose()


async def test_a_keeper_that_comes_back_empty_is_told_again() -> None:
    """Redis without a disk forgets all: the renewals of open streams make it whole."""
    leases = MemoryLeases(loop_time)
    here, there = processes(leases)
    owner = here.for_exchange()
    assert await owner.acquire("lock", "k", 60.0)
    leases.held.clear()
    await asyncio.sleep(20.5)
    assert not await there.acquire("lock", "k", 60.0)
    await owner.release("end", "k")
    assert leases.held == {}
