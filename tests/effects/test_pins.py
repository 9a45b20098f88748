"""Stores of pins: one suite for those in memory, in SQLite and in Redis."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from contract.errors import EffectFailed
from effects.pins import MemoryPins, Pin, PinStore, SqlitePins
from effects.pins.redis import RedisPins
from effects.pins.store import pin_key

GRAPH = Pin("graph", "v1", 1_790_000_000_000_001)
LEGACY = Pin("legacy", "v2", 1_790_000_000_000_002)


@dataclass
class Clock:
    """A wall clock one can move."""

    now: float = 1_790_000_000.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


@dataclass
class Kept:
    """A store, a second router's view of the same one, and a way to let time pass."""

    store: PinStore
    other: PinStore
    lapse: Callable[[float], Awaitable[None]]


@pytest.fixture(params=["memory", "sqlite", pytest.param("redis", marks=pytest.mark.sockets)])
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kept]:
    """Give an empty store of each kind."""
    clock = Clock()

    async def lapse(seconds: float) -> None:
        clock.now += seconds

    async with AsyncExitStack() as stack:
        match request.param:
            case "memory":
                memory = MemoryPins(clock)
                yield Kept(memory, memory, lapse)
            case "sqlite":
                path = tmp_path / "pins.sqlite"
                one, two = [
                    await stack.enter_async_context(SqlitePins.open(path, clock)) for _ in range(2)
                ]
                yield Kept(one, two, lapse)
            case _:
                url = request.getfixturevalue("redis_url")
                yield await in_redis(url, stack)


async def in_redis(url: str, stack: AsyncExitStack) -> Kept:
    """Give a store in Redis whose time passes by what its keys have left."""
    prefix = f"test:{uuid4().hex}:"
    client = await stack.enter_async_context(Redis.from_url(url))

    async def lapse(seconds: float) -> None:
        async for key in client.scan_iter(f"{prefix}*"):
            left = await client.pttl(key)
            await client.pexpire(key, max(left - round(seconds * 1_000), 0))

    one, two = (RedisPins(url, prefix=prefix) for _ in range(2))
    for store in (one, two):
        stack.push_async_callback(store.aclose)
    stack.push_async_callback(lapse, 1e9)
    return Kept(one, two, lapse)


async def test_the_first_one_wins(kept: Kept) -> None:
    """Whoever comes later is given what the first one pinned, whichever router asks."""
    assert await kept.store.hold("chat", "c1", GRAPH, 60.0) == GRAPH
    assert await kept.store.hold("chat", "c1", LEGACY, 60.0) == GRAPH
    assert await kept.other.hold("chat", "c1", LEGACY, 60.0) == GRAPH


async def test_of_many_at_once_one_wins(kept: Kept) -> None:
    """Twenty routers pin together; all are given the same pin."""
    pins = [Pin("graph" if n % 2 else "legacy", f"v{n}", n) for n in range(20)]
    stores = (kept.store, kept.other)
    given = await asyncio.gather(
        *(stores[n % 2].hold("chat", "c1", pin, 60.0) for n, pin in enumerate(pins))
    )
    assert len(set(given)) == 1
    assert given[0] in pins


async def test_conversations_and_flows_do_not_touch_each_other(kept: Kept) -> None:
    """The same id in another flow is another conversation; any text may be an id."""
    for flow, conversation in [("chat", "会话:1"), ("chat", "会话:2"), ("ops", "会话:1")]:
        pin = Pin("graph", f"{flow} {conversation}", 1)
        assert await kept.store.hold(flow, conversation, pin, 60.0) == pin


async def test_a_pin_ends_after_its_last_turn(kept: Kept) -> None:
    """A moment before it is there, and renewed; afterwards the next one pins anew."""
    assert await kept.store.hold("chat", "c1", GRAPH, 60.0) == GRAPH
    await kept.lapse(50.0)
    assert await kept.other.hold("chat", "c1", LEGACY, 60.0) == GRAPH
    await kept.lapse(50.0)
    assert await kept.store.hold("chat", "c1", LEGACY, 60.0) == GRAPH
    await kept.lapse(61.0)
    assert await kept.store.hold("chat", "c1", LEGACY, 60.0) == LEGACY


async def test_memory_has_a_bound() -> None:
    """Those not asked for the longest are forgotten first."""
    store = MemoryPins(most=2)
    for conversation in ("a", "b", "a", "c"):
        await store.hold("chat", conversation, GRAPH, 60.0)
    assert await store.hold("chat", "a", LEGACY, 60.0) == GRAPH
    assert await store.hold("chat", "b", LEGACY, 60.0) == LEGACY


async def test_a_file_outlives_its_router_and_loses_what_has_ended(tmp_path: Path) -> None:
    """The next start finds the pins; those that ended meanwhile take no room, no id is in it."""
    path, clock = tmp_path / "pins.sqlite", Clock()
    async with SqlitePins.open(path, clock) as store:
        await store.hold("chat", "short", GRAPH, 10.0)
        await store.hold("chat", "long", GRAPH, 100.0)
    clock.now += 20.0
    async with SqlitePins.open(path, clock) as store:
        assert rows(path) == [pin_key("chat", "long")]
        assert await store.hold("chat", "long", LEGACY, 100.0) == GRAPH
        await store.aclose()
    assert b"long" not in path.read_bytes()


async def test_a_writer_in_the_way_is_a_fault_soon(tmp_path: Path) -> None:
    """Nobody waits five seconds for a pin."""
    path = tmp_path / "pins.sqlite"
    async with SqlitePins.open(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(EffectFailed) as failed:
            await store.hold("chat", "c1", GRAPH, 60.0)
        other.close()
        assert failed.value.fault.code == "store_unavailable"
        assert await store.hold("chat", "c1", GRAPH, 60.0) == GRAPH


@pytest.mark.sockets
async def test_redis_out_of_reach_is_a_fault(unused_port: int) -> None:
    """No exception of the library leaves the adapter, and no address is in the fault."""
    store = RedisPins(f"redis://127.0.0.1:{unused_port}/0")
    with pytest.raises(EffectFailed) as failed:
        await store.hold("chat", "c1", GRAPH, 60.0)
    assert failed.value.fault.code == "store_unavailable"
    assert not failed.value.fault.data
    await store.aclose()


@pytest.mark.sockets
@pytest.mark.parametrize("value", [b"", b"graph", b'{"stack":"new","version":"","since":1}'])
async def test_a_value_that_is_no_pin_is_a_fault(redis_url: str, value: bytes) -> None:
    """Somebody else wrote it; it is not taken for a stack."""
    prefix = f"test:{uuid4().hex}:"
    async with Redis.from_url(redis_url) as client:
        await client.set(prefix + pin_key("chat", "c1"), value, px=60_000)
        store = RedisPins(redis_url, prefix=prefix)
        with pytest.raises(EffectFailed) as failed:
            await store.hold("chat", "c1", GRAPH, 60.0)
        assert failed.value.fault.code == "store_failed"
        await store.aclose()
        await client.delete(prefix + pin_key("chat", "c1"))


def rows(path: Path) -> list[str]:
    """Give the keys in a file."""
    connection = sqlite3.connect(path)
    found = [key for (key,) in connection.execute("SELECT key FROM pins")]
    connection.close()
    return found
