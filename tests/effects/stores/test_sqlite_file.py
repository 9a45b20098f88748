"""A store's SQLite file in trouble: locked, removed, replaced, out of reach, half committed."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event

import pytest

from contract.errors import EffectFailed
from contract.stores import Turn
from effects.stores import SqlConversations
from effects.stores.sqlite import BUSY_MS, SqliteDatabase, transaction
from effects.stores.tables import Schema
from tests.support.clocks import Clock


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look where the file is before every call, and not once a second."""
    monkeypatch.setattr("effects.stores.sqlite.LOOK_S", 0.0)


def said(number: int) -> Turn:
    """Make a turn."""
    return Turn(message_id=f"m{number}", role="user", content="hello", chat_id="c", at=number)


def removed(path: Path) -> None:
    """Remove a database as people do: with all that is named like it."""
    for one in path.parent.glob(f"{path.name}*"):
        one.unlink()


def patience(connection: sqlite3.Connection) -> int:
    """Tell how many milliseconds this call would wait for another writer."""
    (found,) = connection.execute("PRAGMA busy_timeout").fetchone()
    return int(found)


@contextmanager
def kept(path: Path) -> Iterator[list[str]]:
    """Give the ids of the turns in a file that is whole."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        yield [one for (one,) in connection.execute("SELECT message_id FROM turns ORDER BY seq")]


async def test_calls_wait_for_another_writer_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has waited behind one that did waits no second time: the hundredth would hang."""
    clock, go = Clock(), Event()
    monkeypatch.setattr("effects.stores.sqlite.monotonic", clock)

    def wait_long(_: sqlite3.Connection) -> None:
        go.wait()
        clock.now += BUSY_MS / 1_000

    async with SqliteDatabase.open(tmp_path / "own.db", Schema("own", ())) as file:
        first = asyncio.create_task(file.run(wait_long))
        behind = [asyncio.create_task(file.run(patience)) for _ in range(3)]
        await asyncio.sleep(0)  # all are queued
        go.set()
        await first
        assert all(waits < BUSY_MS // 2 for waits in await asyncio.gather(*behind))
        assert await file.run(patience) == BUSY_MS


@pytest.mark.usefixtures("looking")
async def test_a_file_that_is_removed_is_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is stored afterwards can be found; it would go with the file that was removed."""
    path = tmp_path / "turns.db"
    async with SqlConversations.open(path) as store:
        await store.put("message", said(1))
        removed(path)
        for number in (2, 3):
            assert await store.put("message", said(number))
    with kept(path) as ids:
        assert ids == ["m2", "m3"]
    (told,) = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert "turns.db was removed or replaced" in told.getMessage()


@pytest.mark.usefixtures("looking")
@pytest.mark.parametrize("log_too", [True, False], ids=["with its log", "without its log"])
async def test_a_file_that_is_replaced_is_read_as_it_is(tmp_path: Path, *, log_too: bool) -> None:
    """An older copy holds what it held; the log of the file before it is no part of it."""
    path, copy = tmp_path / "turns.db", tmp_path / "copy.db"
    async with SqlConversations.open(path) as store:
        await store.put("message", said(1))
    shutil.copy(path, copy)
    async with SqlConversations.open(path) as left, SqlConversations.open(path) as right:
        for number in range(2, 50):
            await left.put("message", said(number))
        if log_too:
            removed(path)
        copy.rename(path)
        for number, store in ((100, left), (101, right), (102, left)):
            assert await store.put("message", said(number))
        assert await right.find("message", "m2") is None
        assert await right.find("message", "m102") == said(102)
    with kept(path) as ids:
        assert ids == ["m1", "m100", "m101", "m102"]


@pytest.mark.usefixtures("looking")
async def test_a_file_that_is_moved_away_is_whole(tmp_path: Path) -> None:
    """What stood in its log alone goes with it: that is what it was put aside for."""
    path, aside = tmp_path / "turns.db", tmp_path / "aside.db"
    async with SqlConversations.open(path) as store:
        await store.put("message", said(1))
        path.rename(aside)
        await store.put("message", said(2))
    with kept(aside) as old, kept(path) as new:
        assert (old, new) == (["m1"], ["m2"])


@pytest.mark.usefixtures("looking")
async def test_a_file_out_of_reach_is_a_fault_until_it_is_back(tmp_path: Path) -> None:
    """A disk that is gone is nothing to write to; once it is there again no restart is needed."""
    folder, away = tmp_path / "disk", tmp_path / "away"
    folder.mkdir()
    async with SqlConversations.open(folder / "turns.db") as store:
        await store.put("message", said(1))
        folder.rename(away)
        for _ in range(2):
            with pytest.raises(EffectFailed) as failed:
                await store.put("message", said(2))
            assert failed.value.fault.code == "store_unavailable"
        away.rename(folder)
        assert await store.find("message", "m1") == said(1)


@pytest.mark.usefixtures("looking")
async def test_newer_tables_are_not_written_to(tmp_path: Path) -> None:
    """Nor are they where they have come while the file was open."""
    path = tmp_path / "turns.db"
    async with SqlConversations.open(path) as store:
        removed(path)
        with closing(sqlite3.connect(path)) as newer, newer:
            newer.execute("CREATE TABLE schema_versions (store TEXT PRIMARY KEY, version INTEGER)")
            newer.execute("INSERT INTO schema_versions VALUES ('conversations', 99)")
        with pytest.raises(EffectFailed) as failed:
            await store.find("message", "m1")
        assert failed.value.fault.data == {"reason": "file"}


NOTES = Schema("own", (), initial=("CREATE TABLE IF NOT EXISTS notes (text TEXT)",))
ANOTHER = """
import sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
file.execute("PRAGMA journal_mode = WAL")
file.execute("CREATE TABLE IF NOT EXISTS notes (text TEXT)")
file.execute("INSERT INTO notes VALUES ('theirs')")
print("there", flush=True)
sys.stdin.readline()
print(*(text for (text,) in file.execute("SELECT text FROM notes")))
"""


def note(connection: sqlite3.Connection, text: str) -> None:
    """Write a note down."""
    connection.execute("INSERT INTO notes VALUES (?)", (text,))


def fold(connection: sqlite3.Connection) -> None:
    """Empty the log into the file, as deleting does."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


@pytest.mark.usefixtures("looking")
@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "removed"])
async def test_the_log_of_who_was_there_first_stays(tmp_path: Path, *, replaced: bool) -> None:
    """A process that is started anew may have the new file open when others come to look."""
    path, link, copy = tmp_path / "own.db", tmp_path / "link.db", tmp_path / "copy.db"
    link.symlink_to(path)
    async with SqliteDatabase.open(copy, NOTES):
        pass
    async with (
        SqliteDatabase.open(path, NOTES) as left,
        SqliteDatabase.open(link, NOTES) as right,
    ):
        await left.run(note, "old")
        await left.run(fold)
        copy.replace(path) if replaced else path.unlink()
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ANOTHER, str(path), stdin=PIPE, stdout=PIPE
        )
        assert other.stdout is not None
        assert await other.stdout.readline() == b"there\n"
        await right.run(note, "right")
        await left.run(note, "left")
        said, _ = await other.communicate(b"\n")
    assert said == b"theirs right left\n"


@pytest.mark.usefixtures("looking")
async def test_a_link_that_leads_elsewhere_leaves_a_whole_file(tmp_path: Path) -> None:
    """What it led to may be open by its own name: its log stays."""
    path, other, link = tmp_path / "own.db", tmp_path / "other.db", tmp_path / "link.db"
    link.symlink_to(path)
    async with (
        SqliteDatabase.open(path, NOTES) as named,
        SqliteDatabase.open(link, NOTES) as linked,
    ):
        await named.run(note, "named")
        link.unlink()
        link.symlink_to(other)
        await linked.run(note, "linked")
        await named.run(note, "again")
        assert (tmp_path / "own.db-wal").exists()
    for one, texts in ((path, ["named", "again"]), (other, ["linked"])):
        with closing(sqlite3.connect(one)) as connection:
            assert [text for (text,) in connection.execute("SELECT text FROM notes")] == texts


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    """Give two tables, one of whose promises is only looked at when a transaction is committed."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("CREATE TABLE named (name TEXT PRIMARY KEY)")
        connection.execute(
            "CREATE TABLE names (name TEXT REFERENCES named DEFERRABLE INITIALLY DEFERRED)"
        )
        yield connection


def test_what_cannot_be_committed_is_undone(connection: sqlite3.Connection) -> None:
    """Left open, it would be in the way of all that follow."""
    with (
        pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"),
        transaction(connection),
    ):
        connection.execute("INSERT INTO names VALUES ('a')")
    with transaction(connection):
        connection.execute("INSERT INTO named VALUES ('b')")
    assert connection.execute("SELECT * FROM names").fetchall() == []


def test_an_error_that_ends_the_transaction_is_told_as_it_is(
    connection: sqlite3.Connection,
) -> None:
    """That there is nothing to undo any more is not what went wrong."""
    connection.execute("INSERT INTO named VALUES ('a')")
    with (
        pytest.raises(sqlite3.IntegrityError, match="UNIQUE"),
        transaction(connection),
    ):
        connection.execute("INSERT OR ROLLBACK INTO named VALUES ('a')")
