"""Stores written by earlier commits are opened, whole, in SQLite and in PostgreSQL."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from contract.human import HumanAnswer
from contract.stores import DataSubject, Reading, Recall, Revision, Turn
from effects.memory import HashedEmbedder, open_memory
from effects.stores import (
    BreakerNote,
    Pin,
    Spending,
    SqlConversations,
    SqlLeases,
    SqlPauses,
    SqlPins,
    SqlSharedState,
    SqlWriteJournal,
    StoredWrite,
)
from effects.stores.database import open_database
from effects.stores.pauses.aes import AesEncryption
from effects.stores.tables import (
    BREAKER_NOTES,
    CONVERSATIONS,
    LEASES,
    LOCKS,
    PAUSE_STORE,
    PAUSES,
    PIN_STORE,
    PINS,
    SHARED_STATE,
    SPENDING,
    TURNS,
)
from router.admin.history import History
from tests.support.postgres import PLACES, empty_place, execute

STORED = Path(__file__).resolve().parents[2] / "data" / "stores-3245704"
NOW = 1_790_000_000.0
KEY = bytes(range(32))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return an SQLite file with every store in it."""
    path = tmp_path / "stores.sqlite"
    path.write_bytes(gzip.decompress((STORED / "stores.sqlite.gz").read_bytes()))
    return path


@pytest.fixture(params=PLACES)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Return the address of the stores."""
    if request.param == "sqlite":
        yield f"sqlite:///{request.getfixturevalue('file')}"
        return
    async with empty_place(request, tmp_path, "pgvector_dsn") as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute((STORED / "stores.sql").read_bytes())
        yield dsn


async def test_conversations_go_on(place: str) -> None:
    """Turns are found in their order, and the next one comes after them."""
    async with SqlConversations.open(place) as store:
        history = await store.history("h", "c1", before="", limit=10)
        assert [(turn.message_id, turn.content) for turn in history] == [
            ("m1", "Where is 苏州?"),
            ("r1b", "In Jiangsu."),
            ("m2", "And the canal?"),
        ]
        found = await store.find("f", "m1")
        assert found is not None
        assert (found.chat_id, found.user_id, found.user_name) == ("c1", "u1", "Zoë")
        assert (found.data, found.at) == (None, None)
        assert await store.put("p", found)
        reply = type(found)(
            message_id="r2",
            role="assistant",
            content="Yes.",
            chat_id="c1",
            reply_to="m2",
            data={"rows": ["Grand Canal"]},
            at=1_790_000_000,
        )
        assert await store.put("p", reply)
        assert (await store.history("h", "c1", before="", limit=1)) == (reply,)
        assert (await store.erase(DataSubject("user", "u1"))).turns == 5


async def test_stored_turns_are_seen_by_every_flow(place: str) -> None:
    """Whose they are is not known; what each flow adds is its own, and their ids stay taken."""
    async with SqlConversations.open(place) as store:
        for flow in (store.of("chat"), store.of("session")):
            found = await flow.find("f", "m2")
            assert found is not None
            assert await flow.put("p", found)
            other = type(found)(message_id="m2", role="user", content="Other")
            assert not await flow.put("p", other)
            assert len(await flow.history("h", "c1", before="m3", limit=10)) == 3
            new = type(found)(message_id="new", role="user", content="New", chat_id="c1")
            assert await flow.put("p", new)
            ids = [turn.message_id for turn in await flow.history("h", "c1", before="", limit=10)]
            assert ids == ["m1", "r1b", "m2", "new"]
    async with SqlConversations.open(place) as store:
        assert len(await store.of("chat").history("h", "c1", before="", limit=10)) == 4


VERSION_2 = """
CREATE TABLE schema_versions (store TEXT PRIMARY KEY, version INTEGER NOT NULL);
INSERT INTO schema_versions VALUES ('conversations', 2);
CREATE TABLE turns (
    seq {seq} PRIMARY KEY, flow TEXT DEFAULT '' NOT NULL, message_id TEXT NOT NULL,
    role TEXT NOT NULL, content TEXT NOT NULL, chat_id TEXT, user_id TEXT, user_name TEXT,
    reply_to TEXT
);
CREATE INDEX replies ON turns (reply_to, seq) WHERE reply_to IS NOT NULL;
CREATE UNIQUE INDEX turns_by_id ON turns (message_id, flow);
CREATE INDEX turns_of_a_chat ON turns (chat_id, seq);
INSERT INTO turns (flow, message_id, role, content, chat_id) VALUES ('chat', 'm1', 'user', '?', 'c')
"""


@pytest.fixture(params=PLACES)
async def version_2(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Return the address of conversations as commit f5ce6458 stored them."""
    async with empty_place(request, tmp_path) as place:
        seq = "INTEGER" if place.startswith("sqlite") else "BIGINT GENERATED ALWAYS AS IDENTITY"
        for statement in VERSION_2.format(seq=seq).split(";"):
            execute(place, statement)
        yield place


async def test_turns_of_version_2_go_on(version_2: str) -> None:
    """They have neither data nor a time; a turn that comes after them has both, in each process."""
    old = Turn(message_id="m1", role="user", content="?", chat_id="c")
    new = replace(old, message_id="r1", role="assistant", data={"rows": [1]}, at=1_790_000_000)
    for _ in range(2):
        async with SqlConversations.open(version_2) as opened:
            store = opened.of("chat")
            assert await store.put("message", old)
            assert not await store.put("message", replace(old, data={}))
            assert await store.put("reply", new)
            assert await store.history("h", "c", before="", limit=9) == (old, new)


@pytest.mark.parametrize("embedder", [None, HashedEmbedder(16)], ids=["text", "vectors"])
async def test_memories_are_recalled(place: str, embedder: HashedEmbedder | None) -> None:
    """By full text, and by the vectors that were made then; their type and time are not known."""
    async with open_memory(place, embedder) as memory:
        found = await memory.recall("r", Recall(user_id="u1", query="jasmine tea 苏州", limit=1))
        assert [entry.memory_id for entry in found] == ["e1"]
        assert (found[0].kind, found[0].at, found[0].changed_in) == (None, None, ())
        assert memory.recalls == {"vectors" if embedder else "text": 1}
        reading = Reading(user_id="u1", flow="session", session_id="c2")
        made = replace(found[0], memory_id="e4", text="plays go", kind="other", changed_in=("c2",))
        revision = Revision(reading=reading, message_id="m9", removed=("e1",))
        assert await memory.write("w", (replace(made, at=1),), revision) == 1
    async with open_memory(place, embedder) as memory:
        found = await memory.recall("r", Recall(user_id="u1", query="plays go"))
        assert found[0] == replace(made, at=1)
        assert await memory.progress("r", reading) == "m9"
        assert await memory.erase(DataSubject("user", "u1")) == 2


async def test_pauses_go_on(place: str) -> None:
    """Each from the state it was in, encrypted or not."""
    async with SqlPauses.open_store(place, lambda: NOW, AesEncryption([KEY])) as pauses:
        waiting = {one.hitl_id: one.state for one in await pauses.waiting()}
        assert waiting == {
            "plain-open": "open",
            "plain-answered": "answered",
            "plain-claimed": "claimed",
            "plain-continued": "answered",
            "sealed-answered": "answered",
        }
        assert await pauses.respond("plain-open", HumanAnswer("approve")) == "accepted"
        assert await pauses.claim("plain-answered", "owner-2", 60.0) == "claimed"
        assert await pauses.claim("plain-claimed", "owner-2", 60.0) == "taken"
        assert await pauses.finish("plain-claimed", "owner-1")
        assert await pauses.claim("plain-finished", "owner-2", 60.0) == "finished"
        assert await pauses.respond("plain-expired", HumanAnswer("approve")) == "expired"
        continued = await pauses.get("plain-continued")
        assert continued is not None
        assert (continued.continued, continued.tape[-4:]) == (True, b"[1]}")
        sealed = await pauses.get("sealed-answered")
        assert sealed is not None
        assert sealed.answer == HumanAnswer("approve", {"seats": 2})
        assert sealed.question is not None
        assert sealed.question.form.title == "Book it?"


async def test_a_journal_of_writes_is_added(place: str) -> None:
    """To stores that had none."""
    write = StoredWrite("x", 1, "chat", "tools.run pay", "begun", NOW, NOW + 60.0)
    async with SqlPauses.open_store(place, lambda: NOW), SqlWriteJournal.open(place) as journal:
        await journal.begin(write)
        assert await journal.abandoned(NOW + 60.0) == (write,)


async def test_what_routers_shared_holds_on(file: Path) -> None:
    """Leases, pins, notes on breakers, spending, and the history of changes."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        leases = await enter(SqlLeases.open(file, lambda: NOW))
        assert not await leases.hold("companion:s-claimed", "token-2", 60_000)
        assert await leases.hold("companion:s-claimed", "token-1", 60_000)
        pins = await enter(SqlPins.open(file, lambda: NOW))
        pin = Pin("graph", "v1", 1_789_000_000_000_000)
        assert await pins.hold("chat", "c1", Pin("legacy", "v2", 1), 60.0) == pin
        shared = await enter(SqlSharedState.open(file, lambda: NOW))
        notes = await shared.update_notes([])
        assert notes == {"graph:chat": BreakerNote("a:1", "open", 15.0, 1)}
        spent = await shared.report_spending(20_717, "router-b", Spending(1, 0.25))
        assert spent == Spending(8, 1.0)
        history = await enter(History.open(file, lambda: NOW))
        (change,) = await history.entries()
        assert (change.who, change.what) == ("operator", "flows.chat.langgraph_percent")


async def test_stored_and_new_tables_have_the_same_columns(file: Path, tmp_path: Path) -> None:
    """Whichever way tables came about, statements find what they name."""
    new = tmp_path / "new.sqlite"
    for path in (file, new):
        for schema in (CONVERSATIONS, PAUSE_STORE, LEASES, PIN_STORE, SHARED_STATE):
            async with open_database(path, schema):
                pass
    for table in (TURNS, PAUSES, LOCKS, PINS, BREAKER_NOTES, SPENDING):
        stored, made = (columns(path, table.name) for path in (file, new))
        assert stored == made == {column.name for column in table.c}


def columns(path: Path, table: str) -> set[str]:
    """Return the names of a table's columns."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        return {name for (name,) in found}
