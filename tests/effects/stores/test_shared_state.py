"""State that routers share: one suite for pins, notes and spending in memory, SQLite and Redis."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from contract.errors import EffectFailed, Fault, FaultCode
from effects.stores import (
    NO_SPENDING,
    BreakerNote,
    MemoryPins,
    MemorySharedState,
    NoteUpdate,
    Pin,
    PinCount,
    PinStore,
    SharedState,
    Spending,
    SqlPins,
    SqlSharedState,
    fake,
    redis,
    shared_state,
)
from effects.stores.redis import RedisLeases, RedisPins, RedisSharedState
from effects.stores.shared_state import NOTE_SECONDS, pin_key
from tests.effects.stores.shared import KINDS, Makers, Shared, keys_in_redis, opened
from tests.support.clocks import Clock
from tests.support.postgres import PLACES, empty_place

GRAPH = Pin("graph", "v1", 1_790_000_000_000_001)
LEGACY = Pin("legacy", "v2", 1_790_000_000_000_002)
KEY = "graph:chat"
OPEN = BreakerNote("a:1", "open", 15.0)
OTHER = BreakerNote("b:1", "open", 15.0)
DAY = 20_717


@pytest.fixture(params=[*KINDS, PLACES[1]])
async def pins(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shared[PinStore]]:
    """Return an empty store of pins of each kind."""
    if request.param == "postgres":
        clock = Clock()
        async with (
            empty_place(request, tmp_path) as place,
            SqlPins.open(place, clock) as one,
            SqlPins.open(place, clock) as two,
        ):
            yield Shared(one, two, clock)
        return
    makers = Makers[PinStore](MemoryPins, SqlPins.open, RedisPins)
    async with opened(request, tmp_path / "pins.sqlite", makers) as stores:
        yield stores


@pytest.fixture(params=KINDS)
async def shared(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Shared[SharedState]]:
    """Return an empty shared state of each kind."""
    makers = Makers[SharedState](MemorySharedState, SqlSharedState.open, RedisSharedState)
    async with opened(request, tmp_path / "state.sqlite", makers) as stores:
        yield stores


def column(path: Path, query: str) -> list[Any]:
    """Read one column of a file."""
    with closing(sqlite3.connect(path)) as connection:
        return [value for (value,) in connection.execute(query)]


async def test_the_first_pin_wins(pins: Shared[PinStore]) -> None:
    """Later calls return what the first one pinned, on any router."""
    assert await pins.store.hold("chat", "c1", GRAPH, 60.0) == GRAPH
    assert await pins.store.hold("chat", "c1", LEGACY, 60.0) == GRAPH
    assert await pins.other.hold("chat", "c1", LEGACY, 60.0) == GRAPH


async def test_of_many_pins_at_once_one_wins(pins: Shared[PinStore]) -> None:
    """Twenty routers pin together; all get the same pin."""
    wanted = [Pin("graph" if n % 2 else "legacy", f"v{n}", n) for n in range(20)]
    stores = (pins.store, pins.other)
    given = await asyncio.gather(
        *(stores[n % 2].hold("chat", "c1", pin, 60.0) for n, pin in enumerate(wanted))
    )
    assert len(set(given)) == 1
    assert given[0] in wanted


async def test_conversations_and_flows_do_not_touch_each_other(pins: Shared[PinStore]) -> None:
    """The same id in another flow is another conversation; any text may be an id."""
    for flow, conversation in [("chat", "会话:1"), ("chat", "会话:2"), ("ops", "会话:1")]:
        pin = Pin("graph", f"{flow} {conversation}", 1)
        assert await pins.store.hold(flow, conversation, pin, 60.0) == pin


async def test_a_moved_pin_holds_on_every_router(pins: Shared[PinStore]) -> None:
    """It takes the place of the first one, or is the first, and lasts from then on."""
    assert await pins.store.hold("chat", "c1", GRAPH, 3_600.0) == GRAPH
    await pins.lapse(3_000.0)
    await pins.other.move("chat", "c1", LEGACY, 3_600.0)
    await pins.store.move("chat", "c2", LEGACY, 3_600.0)
    await pins.lapse(3_000.0)
    assert await pins.store.hold("chat", "c1", GRAPH, 60.0) == LEGACY
    assert await pins.other.hold("chat", "c2", GRAPH, 60.0) == LEGACY


async def test_a_pin_expires_after_its_last_turn(pins: Shared[PinStore]) -> None:
    """A moment before it is there, and renewed; afterwards the next one pins anew."""
    assert await pins.store.hold("chat", "c1", GRAPH, 3_600.0) == GRAPH
    await pins.lapse(3_000.0)
    assert await pins.other.hold("chat", "c1", LEGACY, 3_600.0) == GRAPH
    await pins.lapse(3_000.0)
    assert await pins.store.hold("chat", "c1", LEGACY, 3_600.0) == GRAPH
    await pins.lapse(3_601.0)
    assert await pins.store.hold("chat", "c1", LEGACY, 3_600.0) == LEGACY


async def pinned(store: PinStore, flow: str, legacy: int, graph: int) -> None:
    """Pin so many conversations of a flow to each stack."""
    for pin, number in ((LEGACY, legacy), (GRAPH, graph)):
        for one in range(number):
            await store.hold(flow, f"{pin.stack} {one}", pin, 60.0)


async def test_pins_are_counted_by_flow_and_stack(pins: Shared[PinStore]) -> None:
    """On any router; what has ended does not count."""
    assert await pins.store.count() == {}
    await pinned(pins.store, "chat", 3, 2)
    await pinned(pins.store, "chat-2", 0, 1)
    for store in (pins.store, pins.other):
        assert await store.count() == {"chat": PinCount(3, 2), "chat-2": PinCount(0, 1)}
    await pins.lapse(61.0)
    assert await pins.other.count() == {}


async def test_pins_are_released_by_flow_and_stack(pins: Shared[PinStore]) -> None:
    """What is released is pinned anew; other flows and the other stack keep theirs."""
    await pinned(pins.store, "chat", 3, 2)
    await pinned(pins.store, "chat-2", 1, 0)
    assert await pins.other.release("chat", "legacy") == PinCount(legacy=3)
    assert await pins.store.count() == {"chat": PinCount(0, 2), "chat-2": PinCount(1, 0)}
    assert await pins.store.hold("chat", "legacy 1", GRAPH, 60.0) == GRAPH
    assert await pins.store.hold("chat", "graph 1", LEGACY, 60.0) == GRAPH
    assert await pins.store.release("chat") == PinCount(graph=3)
    assert await pins.store.release("chat") == PinCount()
    assert await pins.other.count() == {"chat-2": PinCount(1, 0)}


async def test_a_release_is_seen_by_other_routers(pins: Shared[PinStore]) -> None:
    """Its mark is another one each time, also where it removed nothing."""
    assert await pins.other.released() == {}
    marks = []
    for _ in range(2):
        await pins.store.release("chat")
        marks.append((await pins.other.released())["chat"])
    assert marks[0] != marks[1]
    await pins.store.release("ops")
    assert (await pins.other.released())["chat"] == marks[1]


async def test_more_pins_than_a_slice_are_counted_and_released(
    pins: Shared[PinStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once, wherever a slice ends."""
    for name in ("_READ_ROWS", "_REMOVED_ROWS"):
        monkeypatch.setattr(shared_state, name, 7)
    for module, name in ((fake, "_COUNTED"), (redis, "_SCANNED")):
        monkeypatch.setattr(module, name, 7)
    for store in (pins.store, pins.other):
        await pinned(store, "chat", 40, 30)
    await pinned(pins.store, "ops", 9, 0)
    assert await pins.store.count() == {"chat": PinCount(40, 30), "ops": PinCount(9, 0)}
    assert await pins.other.release("chat", "graph") == PinCount(graph=30)
    assert await pins.store.count() == {"chat": PinCount(40, 0), "ops": PinCount(9, 0)}


async def test_pins_in_memory_are_bounded() -> None:
    """Those not read for the longest go first."""
    store = MemoryPins(most=2)
    for conversation in ("a", "b", "a", "c"):
        await store.hold("chat", conversation, GRAPH, 60.0)
    assert await store.hold("chat", "a", LEGACY, 60.0) == GRAPH
    assert await store.hold("chat", "b", LEGACY, 60.0) == LEGACY


async def test_pins_in_memory_end() -> None:
    """Expired ones take no memory for long."""
    clock = Clock()
    store = MemoryPins(clock)
    for conversation in range(5_000):
        await store.hold("chat", str(conversation), GRAPH, 60.0)
        clock.now += 1.0
    assert store.size <= 60 + 1_025
    assert await store.hold("chat", "4999", LEGACY, 60.0) == GRAPH


async def test_many_pins_in_memory_go_some_at_a_time() -> None:
    """The oldest: dropping each alone would cost a search with every new conversation."""
    store = MemoryPins(most=128)
    for conversation in range(129):
        await store.hold("chat", str(conversation), GRAPH, 60.0)
    assert store.size == 126
    assert await store.hold("chat", "3", LEGACY, 60.0) == GRAPH
    assert await store.hold("chat", "2", LEGACY, 60.0) == LEGACY


async def test_a_file_of_pins_outlives_its_router_and_loses_expired_ones(
    tmp_path: Path,
) -> None:
    """The next start finds the pins; expired ones are removed, no id is in it."""
    path, clock = tmp_path / "pins.sqlite", Clock()
    async with SqlPins.open(path, clock) as store:
        await store.hold("chat", "short", GRAPH, 10.0)
        await store.hold("chat", "long", GRAPH, 100.0)
    clock.now += 20.0
    async with SqlPins.open(path, clock) as store:
        assert column(path, "SELECT key FROM pins") == [pin_key("chat", "long")]
        assert await store.hold("chat", "long", LEGACY, 100.0) == GRAPH
        await store.aclose()
    assert b"long" not in path.read_bytes()


async def test_a_release_waits_for_a_writer_in_the_way(tmp_path: Path) -> None:
    """Unlike a request, which has failed meanwhile: half a release would help no conversation."""
    path = tmp_path / "pins.sqlite"
    async with SqlPins.open(path) as store:
        await store.hold("chat", "c1", GRAPH, 60.0)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        release = asyncio.create_task(store.release("chat"))
        for _ in range(2):  # one after another, also with the attempts of the release
            with pytest.raises(EffectFailed):
                await store.hold("chat", "c2", GRAPH, 60.0)
        other.close()
        assert await release == PinCount(graph=1)


async def test_a_writer_in_the_way_is_a_fault_soon(tmp_path: Path) -> None:
    """A request does not wait five seconds for a pin."""
    path = tmp_path / "pins.sqlite"
    async with SqlPins.open(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(EffectFailed) as failed:
            await store.hold("chat", "c1", GRAPH, 60.0)
        other.close()
        assert failed.value.fault.code == "store_unavailable"
        assert await store.hold("chat", "c1", GRAPH, 60.0) == GRAPH


async def test_a_note_is_read_by_others(shared: Shared[SharedState]) -> None:
    """With the rest of its time by the store's own clock."""
    assert await shared.store.update_notes([]) == {}
    put = await shared.store.update_notes([NoteUpdate(KEY, BreakerNote("a:1", "probing", 15.0, 2))])
    read = await shared.other.update_notes([])
    for found in (put[KEY], read[KEY]):
        assert (found.mark, found.phase, found.well) == ("a:1", "probing", 2)
        assert 10.0 < found.left <= 15.0
    if shared.clock is not None:
        shared.clock.now += 12.0
        assert (await shared.other.update_notes([]))[KEY].left == 3.0
        shared.clock.now += 12.0
        assert (await shared.other.update_notes([]))[KEY].left == 0.0


async def test_only_what_is_expected_is_replaced(shared: Shared[SharedState]) -> None:
    """A late update returns the note there is; one that expects any is never late."""
    await shared.store.update_notes([NoteUpdate(KEY, OPEN)])
    late = await shared.other.update_notes([NoteUpdate(KEY, OTHER)])
    assert late[KEY].mark == "a:1"
    after = await shared.other.update_notes([NoteUpdate(KEY, OTHER, "a:1")])
    assert after[KEY].mark == "b:1"
    assert (await shared.store.update_notes([NoteUpdate(KEY, OPEN, "a:0")]))[KEY].mark == "b:1"
    closed = BreakerNote("a:2", "closed")
    assert (await shared.store.update_notes([NoteUpdate(KEY, closed, None)]))[KEY].phase == "closed"


async def test_of_many_notes_at_once_one_is_stored(shared: Shared[SharedState]) -> None:
    """Twenty claims for one place; all get the same."""
    await shared.store.update_notes([NoteUpdate(KEY, OPEN)])
    states = (shared.store, shared.other)
    claims = [NoteUpdate(KEY, BreakerNote(f"{n}:1", "probing", 15.0), "a:1") for n in range(20)]
    told = await asyncio.gather(
        *(states[n % 2].update_notes([one]) for n, one in enumerate(claims))
    )
    assert len({notes[KEY].mark for notes in told}) == 1


async def test_the_same_again_changes_nothing(shared: Shared[SharedState]) -> None:
    """After a lost answer the update is repeated; its time does not begin anew."""
    await shared.store.update_notes([NoteUpdate(KEY, OPEN)])
    for expected in ("", "a:1", None):
        again = NoteUpdate(KEY, BreakerNote("a:1", "open", 1_000.0), expected)
        assert (await shared.store.update_notes([again]))[KEY].left <= 15.0


async def test_flows_and_stacks_do_not_touch_each_other(shared: Shared[SharedState]) -> None:
    """Any text is a key; several are stored at once."""
    keys = ["graph:会话", "legacy:会话", "graph:a b"]
    await shared.store.update_notes(
        [NoteUpdate(key, BreakerNote(f"a:{n}", "open", 1.0)) for n, key in enumerate(keys)]
    )
    found = await shared.other.update_notes([])
    assert {key: note.mark for key, note in found.items()} == dict(
        zip(keys, ("a:0", "a:1", "a:2"), strict=True)
    )


async def test_what_is_spent_is_added_up(shared: Shared[SharedState]) -> None:
    """Each reports all it has spent; a repeated report costs nothing, days are apart."""
    assert await shared.store.report_spending(DAY, "a", NO_SPENDING) == NO_SPENDING
    assert await shared.store.report_spending(DAY, "a", Spending(3, 0.5)) == Spending(3, 0.5)
    other = Spending(4, 0.25, 2)
    for _ in range(2):
        assert await shared.other.report_spending(DAY, "b", other) == Spending(7, 0.75, 2)
    own = Spending(10, 1.0, 3)
    assert await shared.store.report_spending(DAY, "a", own) == Spending(14, 1.25, 5)
    own = Spending(10, 1.0, 4)
    assert await shared.store.report_spending(DAY, "a", own) == Spending(14, 1.25, 6)
    assert await shared.store.report_spending(DAY + 1, "a", NO_SPENDING) == NO_SPENDING


async def test_notes_are_removed_in_the_end(tmp_path: Path) -> None:
    """An hour after their time; then the key is free."""
    clock = Clock()
    async with SqlSharedState.open(tmp_path / "state.sqlite", clock) as file:
        states: list[SharedState] = [MemorySharedState(clock), file]
        for state in states:
            await state.update_notes([NoteUpdate(KEY, OPEN)])
        clock.now += NOTE_SECONDS + 15.0
        for state in states:
            assert await state.update_notes([]) == {}
            assert (await state.update_notes([NoteUpdate(KEY, OTHER)]))[KEY].mark == "b:1"


async def test_days_are_removed_in_the_end(tmp_path: Path) -> None:
    """A file keeps yesterday, which a router may still be in, and no day before."""
    path = tmp_path / "state.sqlite"
    async with SqlSharedState.open(path) as state:
        for day in range(4):
            await state.report_spending(DAY + day, "a", Spending(1))
    days = column(path, "SELECT DISTINCT day FROM board_spent ORDER BY day")
    assert days == [DAY + 1, DAY + 2, DAY + 3]


async def test_only_changes_are_written(tmp_path: Path) -> None:
    """Reading waits for no writer: another one may hold the file meanwhile."""
    path = tmp_path / "state.sqlite"
    async with SqlSharedState.open(path) as state:
        await state.report_spending(DAY, "a", Spending(1))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert await state.update_notes([]) == {}
        assert await state.report_spending(DAY, "a", Spending(1)) == Spending(1)
        other.close()


Adapter = RedisSharedState | RedisLeases | RedisPins
CALLS: list[tuple[type[Adapter], Callable[..., Awaitable[object]], FaultCode]] = [
    (RedisSharedState, lambda state: state.update_notes([]), "store_unavailable"),
    (
        RedisSharedState,
        lambda state: state.report_spending(20_717, "a", NO_SPENDING),
        "store_unavailable",
    ),
    (
        RedisPins,
        lambda pins: pins.hold("chat", "c1", Pin("graph", "v1", 1), 60.0),
        "store_unavailable",
    ),
    (RedisLeases, lambda leases: leases.hold("k", "token", 60_000), "lock_unavailable"),
    (RedisLeases, lambda leases: leases.release("k", "token"), "lock_unavailable"),
]


@pytest.mark.sockets
@pytest.mark.parametrize(("adapter", "call", "code"), CALLS)
async def test_redis_out_of_reach_is_a_fault(
    unused_port: int,
    adapter: type[Adapter],
    call: Callable[..., Awaitable[object]],
    code: FaultCode,
) -> None:
    """No exception of the library leaves an adapter, and no address is in the fault."""
    async with aclosing(adapter(f"redis://127.0.0.1:{unused_port}/0")) as asked:
        with pytest.raises(EffectFailed) as failed:
            await call(asked)
    assert failed.value.fault == Fault(code, retryable=True)


@pytest.mark.sockets
@pytest.mark.parametrize("pin", [b"", b"graph", b'{"stack":"new","version":"","since":1}'])
async def test_a_foreign_value_in_redis_is_a_fault(redis_url: str, pin: bytes) -> None:
    """Another program wrote it: it pins, opens and spends nothing; nor is half a character sent."""
    async with keys_in_redis(redis_url) as keys:
        await keys.client.set(keys.prefix + pin_key("chat", "c1"), pin, px=60_000)
        await keys.client.hset(f"{keys.prefix}notes", KEY, '["a:1","shut",1,0]')
        await keys.client.hset(f"{keys.prefix}spent:{DAY}", "b", "much")
        async with (
            aclosing(RedisPins(redis_url, prefix=keys.prefix)) as pins,
            aclosing(RedisSharedState(redis_url, prefix=keys.prefix)) as state,
            aclosing(RedisLeases(redis_url, prefix=keys.prefix)) as leases,
        ):
            calls: list[tuple[Awaitable[object], FaultCode]] = [
                (pins.hold("chat", "c1", GRAPH, 60.0), "store_failed"),
                (state.update_notes([]), "store_failed"),
                (state.report_spending(DAY, "a", NO_SPENDING), "store_failed"),
                (leases.hold("\ud800", "token", 60_000), "lock_unavailable"),
            ]
            for call, code in calls:
                with pytest.raises(EffectFailed) as failed:
                    await call
                assert failed.value.fault == Fault(code, data={"reason": "value"})
        await keys.client.delete(f"{keys.prefix}notes", f"{keys.prefix}spent:{DAY}")
