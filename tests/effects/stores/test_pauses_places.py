"""Where pauses are kept: they outlive processes, are shared, and change with the code."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from effects.clock import ManualClock
from effects.stores import SqlPauses
from tests.effects.stores.test_pauses import HOUR, YES, paused, tape

FIRST_VERSION = """CREATE TABLE graph_checkpoints (
    hitl_id TEXT PRIMARY KEY, exchange TEXT NOT NULL, flow TEXT NOT NULL, stack TEXT NOT NULL,
    created_at REAL NOT NULL, expires_at REAL NOT NULL, session_id TEXT, question BLOB NOT NULL,
    tape BLOB NOT NULL, answer_site TEXT NOT NULL, answer_key TEXT NOT NULL, state TEXT NOT NULL,
    answer BLOB NOT NULL, digest TEXT NOT NULL, owner TEXT NOT NULL, leased_until REAL NOT NULL
)"""


@pytest.fixture
def clock() -> ManualClock:
    """Give a clock that is moved by hand."""
    return ManualClock()


async def test_a_pause_survives_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    """Opened again, it can be answered and claimed; what is over has left the file."""
    path = tmp_path / "pauses.db"
    async with SqlPauses.open_store(path, clock.time) as pauses:
        await pauses.open(paused(clock))
    async with SqlPauses.open_store(path, clock.time) as pauses:
        assert await pauses.respond("h1", YES) == "accepted"
        assert await pauses.claim("h1", "x1", 60.0) == "claimed"
        found = await pauses.get("h1")
        assert found is not None
        assert found.tape == paused(clock).tape
        await pauses.finish("h1", "x1")
    assert found.tape not in path.read_bytes()
    connection = sqlite3.connect(path)
    row = connection.execute("SELECT count(*), max(length(tape)) FROM graph_checkpoints").fetchone()
    connection.close()
    assert row == (1, 0)


async def test_of_two_routers_one_continues(place: str, clock: ManualClock) -> None:
    """They go through the same pauses together: each goes on with those the other has not got."""
    ids = [f"h{number}" for number in range(20)]
    async with (
        SqlPauses.open_store(place, clock.time) as left,
        SqlPauses.open_store(place, clock.time) as right,
    ):
        for hitl_id in ids:
            await left.open(paused(clock, hitl_id))
            await left.respond(hitl_id, YES)
        claims = [
            asyncio.gather(left.claim(one, "x1", 60.0), right.claim(one, "x2", 60.0)) for one in ids
        ]
        replies = [sorted(await both) for both in claims]
    assert replies == [["claimed", "taken"]] * len(ids)


async def test_where_nothing_waits_nobody_waits_for_who_writes(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Every turn of a session ends what waits in it, before its first frame."""
    path = tmp_path / "pauses.db"
    async with SqlPauses.open_store(path, clock.time) as pauses:
        with closing(sqlite3.connect(path, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            assert await pauses.expire_session("companion", "s") == 0


async def test_a_file_of_the_first_version_is_brought_up_to_date(
    tmp_path: Path, clock: ManualClock
) -> None:
    """A pause that waited while the code was changed is answered, continued and given back."""
    path = tmp_path / "pauses.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(FIRST_VERSION)
        connection.execute("CREATE TABLE schema_versions (store TEXT PRIMARY KEY, version INTEGER)")
        connection.execute("INSERT INTO schema_versions VALUES ('pauses', 1)")
        connection.execute(
            "INSERT INTO graph_checkpoints VALUES ('h1', 'e1', 'companion', 'legacy', 0.0, ?, 's1',"
            " 'null', ?, 'confirm', 'key', 'open', 'null', '', '', 0.0)",
            (clock.time() + HOUR, b"old tape"),
        )
    async with SqlPauses.open_store(path, clock.time) as pauses:
        found = await pauses.get("h1")
        assert found is not None
        assert (found.tape, found.user_id, found.continued) == (b"old tape", None, False)
        assert await pauses.respond("h1", YES) == "accepted"
        assert await pauses.claim("h1", "x1", 60.0) == "claimed"
        assert await pauses.release("h1", "x1", b"done")
        assert await tape(pauses) == b"done"
