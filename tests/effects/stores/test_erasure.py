"""Erasure removes all of a subject, and nothing of any other."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from contract.stores import ChatKey, DataSubject, MemoryEntry, Recall, Turn
from effects.memory import open_memory
from effects.stores import SqlConversations, SqlPauses
from tests.support.records import a_pause

SECRET = "a-secret-word-of-ann"


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
        (DataSubject("user", "ann"), {"hers", "shared"}, ["b1", "r3"]),
        (DataSubject("chat", "shared"), {"shared"}, ["a1", "r1"]),
        (DataSubject("message", "a2"), {"shared"}, ["a1", "r1", "b1", "r3"]),
        (DataSubject("user", "an"), set(), ["a1", "r1", "a2", "r2", "b1", "r3"]),
        (DataSubject("user", "%"), set(), ["a1", "r1", "a2", "r2", "b1", "r3"]),
    ],
)
async def test_turns_go_with_the_replies_to_them(
    store: SqlConversations, subject: DataSubject, chats: set[str], stays: list[str]
) -> None:
    """The second time there is nothing left to erase."""
    erased = await store.erase(subject)
    assert erased == (6 - len(stays), frozenset(ChatKey("", one) for one in chats))
    assert await left(store) == stays
    assert await store.erase(subject) == (0, frozenset())


@pytest.mark.parametrize("kind", ["conversations", "memory", "pauses"])
async def test_nothing_erased_stays_in_the_file(tmp_path: Path, kind: str) -> None:
    """Neither in free pages nor in the log: rows that are deleted usually do."""
    path, subject = tmp_path / "store.db", DataSubject("user", "ann")
    async with AsyncExitStack() as stack:
        match kind:
            case "conversations":
                turns = await stack.enter_async_context(SqlConversations.open(path))
                await turns.put("message", asked("a1", "ann", "hers"))
                await turns.erase(subject)
            case "memory":
                memory = await stack.enter_async_context(open_memory(path))
                await memory.write("write", (remembered(SECRET, "ann", "hers"),))
                await memory.erase(subject)
            case _:
                pauses = await stack.enter_async_context(SqlPauses.open_store(path))
                await pauses.open(PAUSE)
                await pauses.erase((), (), {"ann"})
        assert b"secret" not in contents(tmp_path)


PAUSE = a_pause(flow="chat", user_id="ann", tape=SECRET.encode())


def contents(folder: Path) -> bytes:
    """Read all files of a folder."""
    return b"".join(one.read_bytes() for one in folder.iterdir())


def remembered(text: str, user: str, session: str) -> MemoryEntry:
    """Build an entry."""
    return MemoryEntry(memory_id=text, user_id=user, text=text, session_id=session)


@pytest.mark.parametrize(
    "condition",
    ["user_id = ?", "session_id = ?", "changed_in IS NOT NULL AND instr(changed_in, ?) > 0"],
)
async def test_memory_finds_what_to_erase_by_an_index(tmp_path: Path, condition: str) -> None:
    """A recall meanwhile does not wait for a search through all users' entries."""
    async with open_memory(tmp_path / "memory.db"):
        with closing(sqlite3.connect(tmp_path / "memory.db")) as file:
            query = f"EXPLAIN QUERY PLAN SELECT seq FROM memories WHERE {condition}"
            ((*_, plan),) = file.execute(query, ("x",))
    assert re.match("SEARCH memories USING|SCAN memories USING INDEX changed_memories", plan)


@pytest.mark.parametrize(
    ("subject", "stays"),
    [
        (DataSubject("user", "ann"), ["ben likes tea"]),
        (DataSubject("chat", "shared"), ["ann likes quinces"]),
        (DataSubject("message", "a1"), ["ann likes tea", "ann likes quinces", "ben likes tea"]),
    ],
)
async def test_memories_go_with_their_index(
    place: str, subject: DataSubject, stays: list[str]
) -> None:
    """What was erased is not found, and can be stored anew."""
    entries = (
        remembered("ann likes tea", "ann", "shared"),
        remembered("ann likes quinces", "ann", "hers"),
        remembered("ben likes tea", "ben", "shared"),
    )
    async with open_memory(place) as memory:
        await memory.write("write", entries)
        assert await memory.erase(subject) == len(entries) - len(stays)

        async def found() -> list[str]:
            asked = [Recall(user_id=user, query="likes", limit=9) for user in ("ann", "ben")]
            return sorted([e.text for one in asked for e in await memory.recall("r", one)])

        assert await found() == sorted(stays)
        assert await memory.erase(subject) == 0
        assert await memory.write("write", entries) == len(entries)
        assert await found() == sorted(entry.text for entry in entries)
