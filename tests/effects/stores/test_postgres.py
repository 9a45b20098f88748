"""Tables in PostgreSQL: brought up to date once, by the first process; never by older code."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import text

from contract.errors import EffectFailed, Fault
from effects.stores.postgres import PostgresDatabase
from effects.stores.tables import STORE_CODES, Schema, Statement, Step, StoreNotOpened
from tests.support.deployment import until
from tests.support.patience import PATIENCE_S
from tests.support.relay import relayed

STEPS: tuple[Step, ...] = (
    {"postgresql": ("ALTER TABLE things ADD COLUMN size integer",)},
    {
        "postgresql": (
            "INSERT INTO things VALUES ('three', 3)",
            "CREATE INDEX sizes ON things (size)",
        )
    },
)
FIRST = ("CREATE TABLE things (name text)", "INSERT INTO things VALUES ('one')")
THINGS = Schema(
    "things",
    (),
    STEPS,
    initial=(*FIRST, *(statement for step in STEPS for statement in step["postgresql"])),
)


def older(version: int) -> Schema:
    """Build the schema as an older version of the code had it."""
    steps = STEPS[: version - 1]
    added = (statement for step in steps for statement in step["postgresql"])
    return Schema("things", (), steps, initial=(*FIRST, *added))


HANG_UP = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"

pytestmark = pytest.mark.sockets


async def names(dsn: str) -> list[tuple[str, int | None]]:
    """Read the things there are."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        found = await connection.execute("SELECT name, size FROM things ORDER BY name")
        return await found.fetchall()


@pytest.mark.parametrize("version", range(4))
async def test_tables_of_every_older_version_are_brought_up_to_date(dsn: str, version: int) -> None:
    """Step by step, each once; again changes nothing."""
    async with PostgresDatabase.open(dsn) as pool:
        if version:
            await pool.migrate(older(version))
        await pool.migrate(THINGS)
        await pool.migrate(THINGS)
    assert await names(dsn) == [("one", None), ("three", 3)]


async def test_newer_tables_are_refused(dsn: str) -> None:
    """The error names store and versions, and no address; the tables stay as they are."""
    async with PostgresDatabase.open(dsn) as pool:
        await pool.migrate(THINGS)
        with pytest.raises(StoreNotOpened, match="version 3, this code knows 1") as refused:
            await pool.migrate(older(1))
        await pool.migrate(THINGS)
    assert "127.0.0.1" not in str(refused.value)
    assert await names(dsn) == [("one", None), ("three", 3)]


async def test_a_step_that_fails_leaves_nothing_half_done(dsn: str) -> None:
    """All steps or none, and the version stays."""
    wrong: Step = {"postgresql": ("INSERT INTO things VALUES ('four', 4)", "SELECT nonsense")}
    broken = Schema("things", (), (*STEPS, wrong))
    async with PostgresDatabase.open(dsn) as pool:
        await pool.migrate(THINGS)
        with pytest.raises(EffectFailed) as failed:
            await pool.migrate(broken)
        assert failed.value.fault.data == {"sqlstate": "42703"}
        await pool.migrate(THINGS)
    assert await names(dsn) == [("one", None), ("three", 3)]


async def test_many_may_open_at_once(dsn: str) -> None:
    """One of them makes the tables, the others wait."""
    async with AsyncExitStack() as stack:
        pools = [await stack.enter_async_context(PostgresDatabase.open(dsn)) for _ in range(5)]
        await asyncio.gather(*(pool.migrate(THINGS) for pool in pools))
    assert await names(dsn) == [("one", None), ("three", 3)]


async def test_what_changes_tables_may_take_its_time(dsn: str) -> None:
    """The limit of a call is none of theirs; afterwards it is in force again."""
    told = "CREATE TABLE told AS SELECT current_setting('statement_timeout') AS told"
    async with PostgresDatabase.open(dsn, limit=4.0) as pool:
        await pool.migrate(Schema("seen", (), initial=(told,)))
        async with pool.connection() as connection:
            now = "SELECT told, current_setting('statement_timeout') FROM told"
            row = await (await connection.execute(now)).fetchone()
    assert row == ("0", "4s")


async def ask(pool: PostgresDatabase, patience: float = 60.0) -> None:
    """Ask something easy, and wait for so long."""
    async with pool.connection() as connection:
        connection.patience = patience
        await connection.execute("SELECT 1")


async def dawdle(pool: PostgresDatabase) -> None:
    """Ask what takes longer than it may."""
    async with pool.connection() as connection:
        await connection.execute("SET statement_timeout = 1")
        await connection.execute("SELECT pg_sleep(60)")


async def test_a_server_that_says_nothing_is_hung_up_on(dsn: str) -> None:
    """What limits a statement is the server's to watch; the next connection is a new one."""
    there = psycopg.conninfo.conninfo_to_dict(dsn)
    async with relayed(int(str(there["port"]))) as relay:
        through = psycopg.conninfo.make_conninfo(dsn, port=relay.port)
        async with PostgresDatabase.open(through, limit=PATIENCE_S) as pool:
            relay.flows.clear()
            with pytest.raises(EffectFailed) as failed:
                await ask(pool, patience=0.01)
            assert failed.value.fault.code == STORE_CODES.unavailable
            relay.flows.set()
            await ask(pool)


class Clock:
    """Goes when it is told to."""

    time = 0.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.time


async def test_a_silent_server_costs_one_call_its_limit(dsn: str) -> None:
    """Those after it fail before they wait for anything, with the same fault, until it speaks."""
    there, clock = psycopg.conninfo.conninfo_to_dict(dsn), Clock()
    async with relayed(int(str(there["port"]))) as relay:
        through = psycopg.conninfo.make_conninfo(dsn, port=relay.port)
        async with PostgresDatabase.open(through, limit=PATIENCE_S, monotonic=clock) as pool:
            relay.flows.clear()
            clock.time += PATIENCE_S
            with pytest.raises(EffectFailed) as first:
                await ask(pool, patience=0.01)
            assert pool.fault is not None
            with pytest.raises(EffectFailed) as next_one:
                ask(pool).send(None)  # to the first thing it waits for
            assert next_one.value.fault == first.value.fault
            relay.flows.set()
            await until(lambda: pool.fault is None)
            await ask(pool)


async def test_a_statement_that_takes_too_long_is_an_answer(dsn: str) -> None:
    """The server gave it up, and says so: it is asked on."""
    clock = Clock()
    async with PostgresDatabase.open(dsn, monotonic=clock) as pool:
        clock.time += 60
        with pytest.raises(EffectFailed) as failed:
            await dawdle(pool)
        assert failed.value.fault.code == STORE_CODES.unavailable
        assert pool.fault is None


@pytest.mark.parametrize("code", ["40P01", "40001", "55P03"])
async def test_a_transaction_that_loses_to_another_is_an_answer(dsn: str, code: str) -> None:
    """A deadlock, say: the caller may repeat it, and the server is asked on."""
    error = f"DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{code}'; END $$"
    clock = Clock()
    async with PostgresDatabase.open(dsn, monotonic=clock) as pool:
        clock.time += 60
        with pytest.raises(EffectFailed) as failed:
            await pool.execute(Statement(text(error))())
        assert failed.value.fault == Fault(STORE_CODES.unavailable, retryable=True)
        assert pool.fault is None


async def test_a_server_that_hung_up_costs_nobody_an_answer(dsn: str) -> None:
    """A restart ends every connection: none of them is lent again."""
    name = uuid4().hex
    named = psycopg.conninfo.make_conninfo(dsn, application_name=name)
    async with (
        PostgresDatabase.open(named) as pool,
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as admin,
    ):
        async with pool.connection(), pool.connection():
            pass
        while await (await admin.execute(HANG_UP, (name,))).fetchall():
            pass
        for _ in range(2):
            await ask(pool)


def test_the_steps_that_are_due() -> None:
    """From the version on; none for the newest, the initial ones where there are no tables."""
    schema = Schema("things", (), ({"sqlite": ("b", "c")}, {"sqlite": ("d",)}), initial=("a",))
    assert schema.due("here", "sqlite", 0) == ["a"]
    assert schema.due("here", "sqlite", 1) == ["b", "c", "d"]
    assert schema.due("here", "sqlite", 2) == ["d"]
    assert schema.due("here", "sqlite", 3) == schema.due("here", "postgresql", 1) == []
