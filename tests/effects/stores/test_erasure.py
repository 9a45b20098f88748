"""Erasure removes all of a subject, and nothing of any other."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from contract.stores import MemoryEntry, Recall, Turn
from effects.memory import open_memory
from effects.stores import Pause, SqlConversations, SqlPauses
from effects.stores.values import DataSubject
from tests.support.postgres import PLACES, empty_place

SECRET = "a-secret-word-of-ann"


@pytest.fixture(params=PLACES)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Return the address of an empty database."""
    async with empty_place(request, tmp_path) as address:
        yield address


@pytest.fixture
async def store(place: str) -> AsyncIterator[SqlConversations]:
    """Return a store with two chats: one of ann's, one in which ann and ben talk."""
    async with SqlConversations.open(place) as store:
        for turn in (
            asked("a1", "ann", "hers"),
            replied("r1", "a1", "hers"),
            asked("a2", "ann", "shared"),
            replied("r2", "a2", "shared"),
            asked("b1", "ben", "shared"),
            replied("r3", "b1", "shared"),
        ):
            assert await store.put("message", turn)
        yield store


def asked(message: str, user: str, chat: str) -> Turn:
    """Build a user's turn."""
    return Turn(message_id=message, role="user", content=SECRET, chat_id=chat, user_id=user)


def replied(message: str, to: str, chat: str) -> Turn:
    """Build a reply, which names no user."""
    return Turn(message_id=message, role="assistant", content=SECRET, chat_id=chat, reply_to=to)


async def left(store: SqlConversations) -> list[str]:
    """Return the messages that are still there."""
    ids = ("a1", "r1", "a2", "r2", "b1", "r3")
    return [one for one in ids if await store.find("message", one)]


@pytest.mark.parametrize(
    ("subject", "chats", "stays"),
    [
        (DataSubject("user", "ann"), frozenset({"hers", "shared"}), ["b1", "r3"]),
        (DataSubject("chat", "shared"), frozenset({"shared"}), ["a1", "r1"]),
        (DataSubject("message", "a2"), frozenset({"shared"}), ["a1", "r1", "b1", "r3"]),
        (DataSubject("user", "an"), frozenset(), ["a1", "r1", "a2", "r2", "b1", "r3"]),
        (DataSubject("user", "%"), frozenset(), ["a1", "r1", "a2", "r2", "b1", "r3"]),
    ],
)
async def test_turns_go_with_the_replies_to_them(
    store: SqlConversations, subject: DataSubject, chats: frozenset[str], stays: list[str]
) -> None:
    """The second time there is nothing left to erase."""
    erased = await store.erase(subject)
    assert (erased.turns, erased.chats) == (6 - len(stays), chats)
    assert await left(store) == stays
    assert await store.erase(subject) == (0, frozenset())


async def test_nothing_erased_stays_in_the_file_of_conversations(tmp_path: Path) -> None:
    """Neither in free pages nor in the log: rows that are deleted usually do."""
    async with SqlConversations.open(tmp_path / "turns.db") as store:
        await store.put("message", asked("a1", "ann", "hers"))
        await store.erase(DataSubject("user", "ann"))
        assert SECRET.encode() not in b"".join(one.read_bytes() for one in files(tmp_path))


def remembered(text: str, user: str, session: str) -> MemoryEntry:
    """Build an entry."""
    return MemoryEntry(memory_id=text, user_id=user, text=text, session_id=session)


def files(folder: Path) -> list[Path]:
    """Return the files of a folder."""
    return sorted(folder.iterdir())


@pytest.mark.parametrize("column", ["user_id", "session_id"])
async def test_memory_finds_what_to_erase_by_an_index(tmp_path: Path, column: str) -> None:
    """A recall meanwhile does not wait for a search through all users' entries."""
    async with open_memory(tmp_path / "memory.db"):
        with closing(sqlite3.connect(tmp_path / "memory.db")) as file:
            query = f"EXPLAIN QUERY PLAN SELECT seq FROM memories WHERE {column} = ?"  # noqa: S608 (ours)
            ((*_, plan),) = file.execute(query, ("x",))
    assert plan.startswith("SEARCH memories USING")


@pytest.mark.parametrize(
    ("subject", "stays"),
    [
        (DataSubject("user", "ann"), ["ben likes tea"]),
        (DataSubject("chat", "shared"), ["ann likes quinces"]),
        (DataSubject("message", "a1"), ["ann likes tea", "ann likes quinces", "ben likes tea"]),
    ],
)
async def test_memories_go_with_their_index(
    tmp_path: Path, subject: DataSubject, stays: list[str]
) -> None:
    """What was erased is not found, and its words are gone from the index."""
    entries = (
        remembered("ann likes tea", "ann", "shared"),
        remembered("ann likes quinces", "ann", "hers"),
        remembered("ben likes tea", "ben", "shared"),
    )
    async with open_memory(tmp_path / "memory.db") as memory:
        await memory.write("write", entries)
        assert await memory.erase(subject) == len(entries) - len(stays)
        found = [
            entry.text
            for user in ("ann", "ben")
            for entry in await memory.recall("r", Recall(user_id=user, query="likes", limit=9))
        ]
        assert sorted(found) == sorted(stays)
        assert await memory.erase(subject) == 0
        assert await memory.write("write", entries) == len(entries) - len(stays)
        if subject.kind == "user":
            await memory.erase(subject)
            assert b"quince" not in b"".join(one.read_bytes() for one in files(tmp_path))


async def test_pauses_go_by_exchange_session_and_user(place: str, tmp_path: Path) -> None:
    """Tapes hold whole conversations: they go with them."""
    async with SqlPauses.open_store(place) as pauses:
        for number, session in enumerate(("hers", "shared", None, "shared")):
            await pauses.open(
                Pause(
                    hitl_id=f"h{number}",
                    exchange=f"x{number}",
                    flow="chat",
                    stack="graph",
                    created_at=0.0,
                    expires_at=2e9,
                    session_id=session,
                    user_id="ann" if number == 3 else None,
                    tape=SECRET.encode(),
                )
            )
        assert await pauses.erase({"x2"}, {"hers"}, {"ann"}) == 3
        assert [await pauses.get(f"h{number}") is None for number in range(4)] == [
            True,
            False,
            True,
            True,
        ]
        assert await pauses.erase({"x2"}, {"hers"}, {"ann"}) == 0
        assert await pauses.erase({"x1"}, set()) == 1
        assert SECRET.encode() not in b"".join(one.read_bytes() for one in files(tmp_path))
