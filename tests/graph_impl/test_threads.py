"""Stores of threads: damaged, foreign, out of reach or slow, they cost no user an answer."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, Final

import ormsgpack
import psycopg
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from contract.errors import EffectFailed
from cutover.wiring.stacks import REST_SECONDS
from effects.circuit_breaker import CircuitBreaker, after_each_failure
from graph_impl import opened, postgres_threads
from graph_impl.postgres_threads import ImpatientConnection
from graph_impl.threads import (
    STORED_BEFORE,
    WAIT_SECONDS,
    MemoryThreads,
    NoSuchThreads,
    ThreadsNotOpened,
    opened_threads,
    sqlite_threads,
)
from tests.support.postgres import execute, own_schema
from tests.support.relay import relayed
from tests.support.session_turns import SECRET, SESSION_ID, House, Place, hold, said, shown

CALLED: list[str] = []


class Trap:
    """What a state must not be able to call."""

    def __init__(self, said: str) -> None:
        CALLED.append(said)


def states() -> Iterator[tuple[str, bytes]]:
    """Yield what may stand where a state should."""
    yield "json", b"{"
    yield "msgpack", b"\xc1"
    yield "pickle", b"cos\nsystem\n."
    yield "made up", b""
    yield "msgpack", ormsgpack.packb({"v": 99})
    yield "msgpack", ormsgpack.packb([1, 2])
    serde = JsonPlusSerializer()
    other: dict[str, Any] = {**empty_checkpoint(), "channel_values": {"messages": "text", "x": 1}}
    yield serde.dumps_typed({**other, "channel_versions": {"messages": 7, "x": "abc"}})
    other["channel_versions"] = {"messages": f"{9:032}.5", "x": f"{9:032}.5"}
    yield serde.dumps_typed(other)
    yield serde.dumps_typed({**other, "versions_seen": None})
    call = ormsgpack.packb((__name__, "Trap", "called"))
    yield (
        "msgpack",
        ormsgpack.packb({**other, "channel_values": {"messages": ormsgpack.Ext(0, call)}}),
    )


STATES: Final = list(states())
DAMAGE = (
    "UPDATE checkpoint_blobs SET type = 'msgpack', blob = '\\xc1'",
    "UPDATE checkpoint_blobs SET type = 'made up'",
    "DELETE FROM checkpoint_blobs",
    "UPDATE checkpoints SET checkpoint = '{}'",
    "UPDATE checkpoints SET checkpoint = '[1]'",
    (
        "UPDATE checkpoints SET checkpoint = "
        "jsonb_set(checkpoint, '{channel_versions}', '{\"messages\": 3}')"
    ),
)


async def overwritten(place: Place, statement: str, *values: object) -> None:
    """Check that a turn is answered, and its thread whole, after a statement damaged it."""
    async with opened_threads(place.address) as threads:
        house = House()
        await hold(threads, house, 1)
        place.execute(statement, *values)
        await hold(threads, house, 1)
        assert await said(threads, SESSION_ID) == shown(house.conversations.turns)
    assert place.rows()["checkpoints"] == 1
    assert CALLED == []


@pytest.mark.untraced
@pytest.mark.parametrize("number", range(len(STATES)))
async def test_a_foreign_state_is_overwritten(tmp_path: Path, number: int) -> None:
    """Garbage, other serialisers, other graphs."""
    place = Place(f"sqlite:///{tmp_path}/threads.db")
    await overwritten(place, "UPDATE checkpoints SET type = ?, checkpoint = ?", *STATES[number])


@pytest.mark.sockets
async def test_routers_that_start_at_once_make_the_tables_of_postgres_once(dsn: str) -> None:
    """The library's own statements collide, although they ask whether there are tables."""
    async with AsyncExitStack() as opened_all:
        opening = (opened_all.enter_async_context(opened_threads(dsn)) for _ in range(4))
        await asyncio.gather(*opening)
        (count,) = execute(dsn, "SELECT count(*) FROM pg_index WHERE NOT indisvalid")
        assert count == (0,)


@pytest.mark.sockets
@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_in_postgres_is_overwritten(postgres_dsn: str, damage: str) -> None:
    """Also where values are stored apart from states."""
    async with own_schema(postgres_dsn) as address:
        await overwritten(Place(address), damage)


class Troubled(MemoryThreads):
    """Threads in a store that raises, or hangs; counts its calls."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.calls = 0
        self.breaker = CircuitBreaker(after_each_failure(REST_SECONDS))

    async def _replace(self, *given: Any) -> RunnableConfig:
        await self._trouble()
        return await super()._replace(*given)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread, or not."""
        await self._trouble()
        await super().adelete_thread(thread_id)

    async def _trouble(self) -> None:
        self.calls += 1
        if self.how == "raises":
            message = "secret of the driver"
            raise OSError(message)
        if self.how == "hangs":
            await asyncio.get_running_loop().create_future()


@pytest.mark.virtual
async def test_a_store_that_fails_costs_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    """Each turn calls it again; the log names the error's class, not its text."""
    threads, house = Troubled("raises"), House()
    with caplog.at_level(logging.WARNING):
        await hold(threads, house, 2)
    assert len(house.conversations.turns) == 4
    assert "a thread is not stored: OSError" in caplog.text
    assert "secret" not in caplog.text
    threads.how = ""
    await hold(threads, house, 1)
    assert await said(threads, SESSION_ID) == shown(house.conversations.turns)


@pytest.mark.virtual
async def test_a_store_that_hangs_is_waited_for_once_in_a_while() -> None:
    """The first turn waits for it; those that follow do not, until it has rested."""
    loop = asyncio.get_running_loop()
    threads, house = Troubled("hangs"), House()
    waited = []
    for _ in range(3):
        began = loop.time()
        await hold(threads, house, 1)
        waited.append(loop.time() - began)
    assert waited == [pytest.approx(WAIT_SECONDS), 0, 0]
    assert threads.calls == 1
    threads.how = ""
    await asyncio.sleep(REST_SECONDS)
    await hold(threads, house, 1)
    assert await said(threads, SESSION_ID) == shown(house.conversations.turns)


@pytest.mark.virtual
async def test_one_turn_finds_out_whether_a_store_that_hung_answers() -> None:
    """Those beside it go on without; where it is asked in vain, it rests again."""
    loop, threads = asyncio.get_running_loop(), Troubled("hangs")
    await hold(threads, House(), 1)
    for asked in (2, 3):
        await asyncio.sleep(REST_SECONDS)
        began = loop.time()
        await asyncio.gather(*(hold(threads, House(), 1) for _ in range(3)))
        assert loop.time() - began == pytest.approx(WAIT_SECONDS)
        assert threads.calls == asked
    threads.how = ""
    await asyncio.sleep(REST_SECONDS)
    await asyncio.gather(*(hold(threads, House(), 2) for _ in range(2)))
    assert threads.calls > asked + 2


@pytest.mark.virtual
@pytest.mark.parametrize("how", ["raises", "hangs"])
async def test_a_thread_that_cannot_be_deleted_is_a_fault(how: str) -> None:
    """The caller gets the fault."""
    with pytest.raises(EffectFailed) as raised:
        await Troubled(how).forget(SESSION_ID)
    assert raised.value.fault.code == "store_unavailable"


@pytest.mark.parametrize("address", ["mysql://h/x", "sqlite:////dev/null/x/y"])
async def test_an_address_without_a_store_is_refused(address: str) -> None:
    """One sentence names the kind of place."""
    with pytest.raises((NoSuchThreads, ThreadsNotOpened), match=address.partition(":")[0]):
        async with opened(address):
            pass


@pytest.mark.sockets
@pytest.mark.slow
async def test_a_password_is_in_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens there, which is waited for briefly here."""
    monkeypatch.setattr(postgres_threads, "WAIT_SECONDS", 0.2)
    address = f"postgresql://me:{SECRET}@127.0.0.1:1/x"
    with pytest.raises(ThreadsNotOpened) as raised:
        async with opened(address):
            pass
    assert SECRET not in str(raised.value)


CONFIG: RunnableConfig = {"configurable": {"thread_id": "s-1", "checkpoint_ns": ""}}
OTHER: RunnableConfig = {"configurable": {"thread_id": "s-2", "checkpoint_ns": ""}}
METADATA: CheckpointMetadata = {"source": "loop", "step": 1}
REFUSES = (
    "CREATE TRIGGER refuses BEFORE INSERT ON checkpoints WHEN new.thread_id = 's-1' "
    "BEGIN SELECT RAISE(ABORT, 'not this'); END"
)


def state(value: object) -> Checkpoint:
    """Return a state that holds a value; later ones have later ids."""
    values = {"messages": value, f"branch:to:{STORED_BEFORE}": None}
    return {**empty_checkpoint(), "channel_values": values}


@pytest.mark.parametrize(
    ("second", "statement", "stored", "logged"),
    [
        ("two", "SELECT 1", "two", ""),
        (object(), "SELECT 1", "one", "a thread is not stored: TypeError"),
        ("two", REFUSES, "one", "a thread is not stored: IntegrityError"),
    ],
    ids=["replaced", "not plain", "refused by the file"],
)
async def test_a_thread_is_replaced_or_stays_as_it_was(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    second: object,
    statement: str,
    stored: str,
    logged: str,
) -> None:
    """In one transaction: nothing is left undone that the turn of another thread would complete."""
    place = Place(f"sqlite:///{tmp_path / 't.db'}")
    async with sqlite_threads(tmp_path / "t.db") as threads:
        await threads.aput(CONFIG, state("one"), METADATA, {})
        place.execute(statement)
        await threads.aput(CONFIG, state(second), METADATA, {})
        await threads.aput(OTHER, state("three"), METADATA, {})
        found = await threads.read("s-1")
    assert found is not None
    assert found.checkpoint["channel_values"] == {"messages": stored}
    assert place.rows() == {"checkpoints": 2, "writes": 0}
    assert logged in caplog.text


async def test_a_turn_that_stops_waiting_for_the_file_stores_nothing(tmp_path: Path) -> None:
    """By then the session may be deleted, by another process."""
    path, began = tmp_path / "t.db", threading.Event()
    async with sqlite_threads(path) as threads:
        await threads.hop(lambda: threads.conn.set_trace_callback(lambda _: began.set()))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            keeping = asyncio.create_task(threads.aput(CONFIG, state("late"), METADATA, {}))
            await asyncio.to_thread(began.wait)
            keeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await keeping
            other.execute("ROLLBACK")
    assert Place(f"sqlite:///{path}").rows() == {"checkpoints": 0, "writes": 0}


@pytest.mark.sockets
async def test_a_cancelled_statement_does_not_wait_for_the_server(postgres_dsn: str) -> None:
    """The library would wait ten seconds: an answer would come out so much later."""
    there = psycopg.conninfo.conninfo_to_dict(postgres_dsn)
    async with relayed(int(str(there["port"]))) as relay:
        through = psycopg.conninfo.make_conninfo(postgres_dsn, port=relay.port)
        async with await ImpatientConnection.connect(through, autocommit=True) as connection:
            relay.flows.clear()
            limit = asyncio.timeout(5.0)
            with pytest.raises(TimeoutError):
                async with limit, asyncio.timeout(0.01):
                    await connection.execute("SELECT 1")
            assert connection.closed
            assert not limit.expired()
