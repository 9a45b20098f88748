"""Ownership of locks: the exchange lets go of them when it ends, whatever its stacks did."""

from __future__ import annotations

import asyncio

import pytest

from effects.testing import World
from tests.effects.tape.calls import TURN, turns
from tests.effects.tape.odd_ports import Raising, SlowLocks, SlowStore

pytestmark = pytest.mark.virtual


async def test_the_exchange_releases_a_lock_the_stack_never_released() -> None:
    """A stack that crashed between acquire and release leaves no lock behind."""
    world = World()
    exchange = world.exchange()
    assert await world.run(exchange).effects().locks.acquire("message", "key", 60.0)
    await exchange.close()
    assert await world.live().locks.acquire("other", "key", 60.0)


async def test_a_released_lock_is_held_until_the_exchange_ends() -> None:
    """The stack's release is noted; letting go is the exchange's, after all its writes."""
    world = World()
    exchange = world.exchange()
    effects = world.run(exchange).effects()
    await effects.locks.acquire("message", "key", 60.0)
    await effects.locks.release("message", "key")
    assert not await world.live().locks.acquire("other", "key", 60.0)
    await exchange.close()
    assert await world.live().locks.acquire("other", "key", 60.0)
    assert [entry.operation.label for entry in exchange.tape.entries] == [
        "locks.acquire",
        "locks.release",
    ]


async def test_locks_are_released_after_the_writes_have_ended() -> None:
    """Nobody else gets the message while something is still being written for it."""
    world = World(conversations=SlowStore(2.0))
    exchange = world.exchange()
    effects = world.run(exchange).effects()
    await effects.locks.acquire("message", "key", 60.0)
    writing = asyncio.create_task(effects.conversations.put("message", TURN))
    await turns()
    closing = asyncio.create_task(exchange.close())
    await asyncio.sleep(1.0)
    assert not await world.live().locks.acquire("other", "key", 60.0)
    await closing
    assert asyncio.get_running_loop().time() == 2.0
    assert await writing
    assert await world.live().locks.acquire("other", "key", 60.0)


async def test_closing_is_idempotent_and_not_stopped_by_cancelling() -> None:
    """Whoever closes may be cancelled, twice even: the locks are let go, then it ends."""
    world = World(conversations=SlowStore(2.0))
    exchange = world.exchange()
    effects = world.run(exchange).effects()
    await effects.locks.acquire("message", "key", 60.0)
    writing = asyncio.create_task(effects.conversations.put("message", TURN))
    await turns()
    closing = asyncio.create_task(exchange.close())
    for _ in range(2):
        await turns()
        closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert await writing
    await exchange.close()
    assert world.count("locks.release") == 1


async def test_one_lock_that_cannot_be_released_keeps_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A store that fails in its own way is logged; the next lock is let go all the same."""
    world = World(locks=Raising(ConnectionError("redis://:secret@db")))
    exchange = world.exchange()
    effects = world.run(exchange).effects()
    for key in ("one", "two"):
        assert await effects.locks.acquire("message", key, 60.0)
    await exchange.close()
    assert world.count("locks.release") == 2
    assert [record.getMessage() for record in caplog.records] == [
        "lock 'two' expires by itself: ConnectionError",
        "lock 'one' expires by itself: ConnectionError",
    ]


async def test_a_lock_acquired_while_the_client_left_is_released() -> None:
    """The acquire was under way; it is seen to its end, and so is the release."""
    world = World(locks=SlowLocks())
    exchange = world.exchange()
    taking = asyncio.create_task(world.run(exchange).effects().locks.acquire("message", "key", 60))
    await turns()
    await exchange.cancel_reads()
    await exchange.close()
    assert await taking
    assert world.count("locks.release") == 1
