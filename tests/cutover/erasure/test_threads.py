"""Whoever is forgotten leaves no thread, in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cutover.erasure import erase_rows, erase_threads
from cutover.flows import SPECS
from effects.stores import SqlConversations
from effects.stores.values import DataSubject, SubjectKind
from graph_impl.threads import opened_threads
from router.config import Settings, parse_settings
from tests.flows.session.conversing import SESSION_ID, House, Place, hold
from tests.support.postgres import own_schema

ADDRESS = "THREADS_ADDRESS"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.sockets)])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Give a place where a session of somebody's has a thread."""
    if request.param == "sqlite":
        place = Place(f"sqlite:///{tmp_path}/threads.db")
        await converse(place, tmp_path)
        yield place
        return
    async with own_schema(request.getfixturevalue("postgres_dsn")) as address:
        place = Place(address)
        await converse(place, tmp_path)
        yield place


async def converse(place: Place, folder: Path) -> None:
    """Hold two turns, and store them."""
    house = House()
    async with opened_threads(place.address) as threads:
        await hold(threads, house, 2)
    async with SqlConversations.open(folder / "store.db") as store:
        for turn in house.conversations.turns:
            await store.put("", turn)


def settings(folder: Path, checkpoints: str = f"env:{ADDRESS}") -> Settings:
    """Configure the stores."""
    text = f"""
[stores]
conversations = "sqlite:///{folder}/store.db"
memory = "memory://"
pauses = "memory://"
checkpoints = "{checkpoints}"
"""
    return parse_settings(text, "cutover.toml", SPECS)


def names(folder: Path) -> list[str]:
    """Name what is in a folder."""
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize(
    ("kind", "value"), [("user", "u"), ("chat", SESSION_ID), ("message", "id-1")]
)
async def test_no_thread_is_left(
    place: Place, tmp_path: Path, kind: SubjectKind, value: str
) -> None:
    """By user, by session, and by a message that stands in it."""
    environ, own = {ADDRESS: place.address}, settings(tmp_path)
    assert place.rows()["checkpoints"] == 1
    rows = await erase_rows(own.stores, environ, DataSubject(kind, value), ())
    assert rows.chats == {SESSION_ID}
    assert await erase_threads(own, environ, rows.chats) == (1, ())
    assert set(place.rows().values()) == {0}


async def test_where_there_are_none_nothing_is_made(tmp_path: Path) -> None:
    """No file, no thread of this process, no address."""
    for where in (f"sqlite:///{tmp_path}/absent/threads.db", "memory://", ""):
        assert await erase_threads(settings(tmp_path, where), {}, {SESSION_ID}) == (0, ())
    assert names(tmp_path) == []


async def test_what_cannot_be_reached_is_named(tmp_path: Path) -> None:
    """Their turns are gone by then: the sentence says for whom to come again."""
    own = settings(tmp_path, f"sqlite:///{tmp_path}/no.db")
    (tmp_path / "no.db").write_bytes(b"this is no database at all, but a text" * 99)
    sessions, left = await erase_threads(own, {}, {"s-2", "s-1"})
    why = "the sqlite store of threads ([stores] checkpoints) cannot be opened: DatabaseError"
    assert (sessions, left) == (None, (f"threads of 's-1', 's-2': {why}; use --chat",))
