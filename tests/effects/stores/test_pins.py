"""Stores of pins: one suite for those in memory, in SQLite and in Redis."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contract.errors import EffectFailed
from effects.stores import MemoryPins, Pin, PinStore, SqlPins
from effects.stores.redis import RedisPins
from effects.stores.shared_state import pin_key
from tests.effects.stores.shared import KINDS, Clock, Makers, Shared, keys_in_redis, opened

GRAPH = Pin("graph", "v1", 1_790_000_000_000_001)
LEGACY = Pin("legacy", "v2", 1_790_000_000_000_002)
STORES = Makers[PinStore](MemoryPins, SqlPins.open, RedisPins)


@pytest.fixture(params=KINDS)
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shared[PinStore]]:
    """Give an empty store of each kind."""
    async with opened(request, tmp_path / "pins.sqlite", STORES) as stores:
        yield stores


async def lapse(kept: Shared[PinStore], seconds: float) -> None:
    """Let time pass for the pins."""
    if kept.clock is not None:
        kept.clock.now += seconds
    if kept.keys is not None:
        await kept.keys.lapse(seconds)


async def test_the_first_one_wins(kept: Shared[PinStore]) -> None:
    """Whoever comes later is given what the first one pinned, whichever router asks."""
    assert await kept.store.hold("chat", "c1", GRAPH, 60.0) == GRAPH
    assert await kept.store.hold("chat", "c1", LEGACY, 60.0) == GRAPH
    assert await kept.other.hold("chat", "c1", LEGACY, 60.0) == GRAPH


async def test_of_many_at_once_one_wins(kept: Shared[PinStore]) -> None:
    """Twenty routers pin together; all are given the same pin."""
    pins = [Pin("graph" if n % 2 else "legacy", f"v{n}", n) for n in range(20)]
    stores = (kept.store, kept.other)
    given = await asyncio.gather(
        *(stores[n % 2].hold("chat", "c1", pin, 60.0) for n, pin in enumerate(pins))
    )
    assert len(set(given)) == 1
    assert given[0] in pins


async def test_conversations_and_flows_do_not_touch_each_other(kept: Shared[PinStore]) -> None:
    """The same id in another flow is another conversation; any text may be an id."""
    for flow, conversation in [("chat", "会话:1"), ("chat", "会话:2"), ("ops", "会话:1")]:
        pin = Pin("graph", f"{flow} {conversation}", 1)
        assert await kept.store.hold(flow, conversation, pin, 60.0) == pin


async def test_a_pin_ends_after_its_last_turn(kept: Shared[PinStore]) -> None:
    """A moment before it is there, and renewed; afterwards the next one pins anew."""
    assert await kept.store.hold("chat", "c1", GRAPH, 60.0) == GRAPH
    await lapse(kept, 50.0)
    assert await kept.other.hold("chat", "c1", LEGACY, 60.0) == GRAPH
    await lapse(kept, 50.0)
    assert await kept.store.hold("chat", "c1", LEGACY, 60.0) == GRAPH
    await lapse(kept, 61.0)
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
    async with SqlPins.open(path, clock) as store:
        await store.hold("chat", "short", GRAPH, 10.0)
        await store.hold("chat", "long", GRAPH, 100.0)
    clock.now += 20.0
    async with SqlPins.open(path, clock) as store:
        assert rows(path) == [pin_key("chat", "long")]
        assert await store.hold("chat", "long", LEGACY, 100.0) == GRAPH
        await store.aclose()
    assert b"long" not in path.read_bytes()


async def test_a_writer_in_the_way_is_a_fault_soon(tmp_path: Path) -> None:
    """Nobody waits five seconds for a pin."""
    path = tmp_path / "pins.sqlite"
    async with SqlPins.open(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(EffectFailed) as failed:
            await store.hold("chat", "c1", GRAPH, 60.0)
        other.close()
        assert failed.value.fault.code == "store_unavailable"
        assert await store.hold("chat", "c1", GRAPH, 60.0) == GRAPH


@pytest.mark.sockets
@pytest.mark.parametrize("value", [b"", b"graph", b'{"stack":"new","version":"","since":1}'])
async def test_a_value_that_is_no_pin_is_a_fault(redis_url: str, value: bytes) -> None:
    """Somebody else wrote it; it is not taken for a stack."""
    async with keys_in_redis(redis_url) as keys:
        await keys.client.set(keys.prefix + pin_key("chat", "c1"), value, px=60_000)
        store = RedisPins(redis_url, prefix=keys.prefix)
        with pytest.raises(EffectFailed) as failed:
            await store.hold("chat", "c1", GRAPH, 60.0)
        assert failed.value.fault.code == "store_failed"
        await store.aclose()


def rows(path: Path) -> list[str]:
    """Give the keys in a file."""
    connection = sqlite3.connect(path)
    found = [key for (key,) in connection.execute("SELECT key FROM pins")]
    connection.close()
    return found
