"""Erasure in the stores: rows, vectors and threads are gone, in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from contract.flows import SPECS
from contract.stores import ChatKey, DataSubject, SubjectKind, Turn
from cutover.erasure import erase_rows, erase_threads
from cutover.stores import open_audit, open_conversations, open_pauses
from effects.memory import HashedEmbedder
from effects.stores import SqlConversations, sqlite_file
from effects.stores.pauses.aes import AesEncryption
from graph_impl.threads import opened_threads
from router.config.loader import parse_settings
from router.config.schema import Settings, StoreSettings
from tests.support.memories import Memories, entry
from tests.support.postgres import PLACES, empty_place
from tests.support.records import a_pause, an_audit_entry
from tests.support.session_turns import SESSION_ID, House, Place, hold

ADDRESS = "STORE_ADDRESS"
ENV = f"env:{ADDRESS}"


@pytest.fixture(params=PLACES)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Return the address of an empty database that can store vectors."""
    async with empty_place(request, tmp_path, "pgvector_dsn") as address:
        yield address


@pytest.mark.parametrize(
    ("kind", "value", "stays"),
    [
        ("user", "ann", ["of ben"]),
        ("chat", "hers", ["of ben", "of her own"]),
        ("message", "m1", ["of ben", "of her chat", "of her own"]),
    ],
)
async def test_turns_and_pauses_of_a_subject_are_gone(
    place: str, kind: SubjectKind, value: str, stays: list[str]
) -> None:
    """By user, by session and by exchange; without the key that encrypted them."""
    async with AsyncExitStack() as stack:
        conversations = await open_conversations(place, stack)
        turn = Turn(
            message_id="m1",
            role="user",
            content="?",
            chat_id="hers",
            user_id="ann",
            data={"disk": "a-secret-name"},
        )
        await conversations.put("message", turn)
        pauses = await open_pauses(place, stack, AesEncryption([bytes(32)]))
        for hitl_id, exchange, session, user in (
            ("of her exchange", "x1", None, None),
            ("of her chat", "x2", "hers", None),
            ("of her own", "x3", None, "ann"),
            ("of ben", "x4", "his", "ben"),
        ):
            pause = a_pause(hitl_id=hitl_id, exchange=exchange, session_id=session, user_id=user)
            assert await pauses.open(pause)
    stores = StoreSettings(conversations=ENV, memory="memory://", pauses=ENV)
    rows = await erase_rows(stores, {ADDRESS: place}, DataSubject(kind, value), {"x1"})
    assert (rows.turns, rows.pauses, rows.failures) == (1, 4 - len(stays), ())
    ids = Place(place).execute("SELECT hitl_id FROM graph_checkpoints ORDER BY hitl_id")
    assert [hitl_id for (hitl_id,) in ids] == stays
    if place.startswith("sqlite"):  # rewritten in the file, the data with the text
        assert b"a-secret-name" not in sqlite_file(place).read_bytes()


async def test_memories_go_with_their_vectors(place: str) -> None:
    """Though erasure knows of no embedder; other users keep theirs."""
    memories = Memories(place)
    async with memories.open(HashedEmbedder(64)) as memory:
        await memory.write("w", (entry("tea", "ann"), entry("cake", "ann"), entry("tea", "ben")))
    stores = StoreSettings(conversations="memory://", memory=ENV, pauses="memory://")
    erased = await erase_rows(stores, {ADDRESS: place}, DataSubject("user", "ann"), ())
    assert (erased.memories, erased.failures) == (2, ())
    assert memories.counts() == [1, 1, 0]


async def test_names_in_the_audit_are_gone_and_its_entries_stay(place: str) -> None:
    """It is where the pauses are, unless it is configured."""
    async with AsyncExitStack() as stack:
        audit = await open_audit(place, stack)
        await audit.append("audit", an_audit_entry(event="approved", by="ann"))
    stores = StoreSettings(conversations="memory://", memory="memory://", pauses=ENV)
    for value, erased in (("ben", 0), ("ann", 1), ("ann", 0)):
        rows = await erase_rows(stores, {ADDRESS: place}, DataSubject("user", value), ())
        assert (rows.audit, rows.failures) == (erased, ())
    assert Place(place).execute("SELECT worker, event FROM audit_entries") == [
        ("system", "approved")
    ]
    assert Place(place).execute("SELECT name FROM audit_pseudonyms") == [("s",)]


def names(folder: Path) -> list[str]:
    """Return the names of what is in a folder."""
    return [path.name for path in folder.iterdir()]


def settings(folder: Path, checkpoints: str = ENV) -> Settings:
    """Configure the stores."""
    text = f"""
[stores]
conversations = "sqlite:///{folder}/turns.db"
memory = "memory://"
pauses = "memory://"
checkpoints = "{checkpoints}"
"""
    return parse_settings(text, "cutover.toml", SPECS)


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("kind", "value"), [("user", "u"), ("chat", SESSION_ID), ("message", "id-1")]
)
async def test_no_thread_remains(place: str, tmp_path: Path, kind: SubjectKind, value: str) -> None:
    """By user, by session, and by a message that stands in it."""
    house, threads = House(), Place(place)
    async with opened_threads(place) as opened:
        await hold(opened, house, 2)
    async with SqlConversations.open(tmp_path / "turns.db") as store:
        for turn in house.conversations.turns:
            await store.put("", turn)
    environ, own = {ADDRESS: place}, settings(tmp_path)
    assert threads.rows()["checkpoints"] == 1
    rows = await erase_rows(own.stores, environ, DataSubject(kind, value), ())
    assert rows.chats == {ChatKey("", SESSION_ID)}
    assert await erase_threads(own, environ, {SESSION_ID}) == (1, ())
    assert set(threads.rows().values()) == {0}


async def test_where_there_are_no_threads_nothing_is_made(tmp_path: Path) -> None:
    """No file, no thread of this process, no address."""
    for where in (f"sqlite:///{tmp_path}/absent/threads.db", "memory://", ""):
        assert await erase_threads(settings(tmp_path, where), {}, {SESSION_ID}) == (0, ())
    assert names(tmp_path) == []


async def test_a_store_of_threads_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """The turns are gone by then: the sentence names the sessions to erase again."""
    own = settings(tmp_path, f"sqlite:///{tmp_path}/no.db")
    (tmp_path / "no.db").write_bytes(b"this is no database at all, but a text" * 99)
    why = "the sqlite store of threads ([stores] checkpoints) cannot be opened: DatabaseError"
    failures = (f"threads of 's-1', 's-2': {why}; use --chat",)
    assert await erase_threads(own, {}, {"s-2", "s-1"}) == (None, failures)
