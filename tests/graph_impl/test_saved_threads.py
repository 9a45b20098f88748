"""Threads of an application's own graph, in SQLite and in PostgreSQL, as conversations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    messages_to_dict,
)

from graph_impl.saved_threads import IDS_AT_ONCE
from tests.docs.transcripts import blocks
from tests.graph_impl.saving_agent import Appended, Managed, Plan, agent
from tests.support.imports import PAGE, Target, type_page
from tests.support.postgres import PLACES, empty_place, execute

pytestmark = pytest.mark.slow

CALLS = [{"name": "search", "args": {}, "id": "call-1"}]
SAVED = "SELECT thread_id, checkpoint_id, length(CAST(checkpoint AS text)) FROM checkpoints"
ROLES = "user, human, assistant, ai, developer, function, system, tool"


@pytest.fixture(params=PLACES)
async def old(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Return the address of an application's checkpoints."""
    async with empty_place(request, tmp_path, "pgvector_dsn") as address:
        yield address.replace("store.db", "old.db")


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """Return stores that are configured, and not made."""
    target = Target(tmp_path, f"sqlite:///{tmp_path}/store.db")
    target.configure()
    return target


ASKED: list[Any] = [
    SystemMessage("Be kind."),
    HumanMessage("我叫张三"),
    AIMessage("", tool_calls=CALLS),
    ToolMessage("{}", tool_call_id="call-1"),
    AIMessage([{"type": "text", "text": "你好"}, {"type": "text", "text": "张三"}]),
]


async def test_messages_of_users_and_assistants_become_turns(old: str, target: Target) -> None:
    """Once: a thread that has grown brings what is new, and the checkpoints stay as they are."""
    async with agent(Appended, old) as run:
        await run("t-1", messages=ASKED, user_id="zhang")
        await run("t-2", messages=[{"role": "user", "content": "hi"}, ("assistant", "ho"), 5])
    before = set(execute(old, SAVED))
    status, output = await typed(target, old)
    assert (status, output.splitlines()) == (
        1,
        [
            "turns of session: 4 new, 0 there already",
            "left out: 1 system message, 1 tool message, 1 without text",
            "not stored: 1",
            f"  t-2: role: 'int' is none of {ROLES}",
        ],
    )
    turns = target.rows("chat_id, role, content, user_id, flow, message_id, reply_to, at")
    assert [one[:5] for one in turns] == [
        ("t-1", "user", "我叫张三", "zhang", "session"),
        ("t-1", "assistant", "你好张三", "zhang", "session"),
        ("t-2", "user", "hi", None, "session"),
        ("t-2", "assistant", "ho", None, "session"),
    ]
    assert turns[1][6] == turns[0][5]
    assert len({one[5] for one in turns}) == 4
    assert all(one[7] > 1_700_000_000 for one in turns)
    async with agent(Appended, old) as run:
        await run("t-1", messages=[HumanMessage("我叫张三")])
    status, output = await typed(target, old)
    assert output.splitlines()[0] == "turns of session: 1 new, 4 there already"
    assert target.rows("role, content")[4:] == [("user", "我叫张三")]
    assert before <= set(execute(old, SAVED))


async def test_a_state_is_named_and_its_other_values_are_not_made(old: str, target: Target) -> None:
    """Ids of messages stay; what the import knows of a thread survives its trimming."""
    names = ("--map", "messages=said", "--map", "user_id=owner", "--flow", "companion")
    async with agent(Managed, old) as run:
        said = [HumanMessage("one", id="h-1"), AIMessageChunk(content="two", id="a-1")]
        await run("t", said=said, owner="ann", plan=Plan(steps=["x"]))
        assert (await typed(target, old, *names))[0] == 0
        await run("t", said=[RemoveMessage("h-1"), HumanMessage("three", id="h-2")])
    status, output = await typed(target, old, *names)
    assert (status, output) == (0, "turns of companion: 1 new, 1 there already\n")
    assert target.rows("message_id, user_id, reply_to, content") == [
        ("h-1", "ann", None, "one"),
        ("a-1", "ann", "h-1", "two"),
        ("h-2", "ann", None, "three"),
    ]
    status, output = await typed(target, old)
    why = "  t: no messages in channel 'messages'; it has 'owner', 'plan', 'said'"
    assert (status, output.splitlines()[-1]) == (1, why)


async def test_a_thread_that_cannot_be_read_costs_no_other(old: str, target: Target) -> None:
    """Its id is named; what is no store of threads is refused at the first look."""
    status, output = await typed(target, old)
    assert status in {1, 2}
    assert "the checkpoints in" in output
    async with agent(Appended, old) as run:
        for thread in ("a", "b", "c"):
            await run(thread, messages=[HumanMessage(thread)])
    blobs = "checkpoints" if old.startswith("sqlite") else "checkpoint_blobs"
    execute(old, f"UPDATE {blobs} SET type = 'pickle' WHERE thread_id = 'b'")
    status, output = await typed(target, old)
    assert (status, output.splitlines()[0]) == (1, "turns of session: 2 new, 0 there already")
    assert "  b: its state cannot be decoded (NotImplementedError)" in output


async def test_messages_of_every_form_have_their_role(tmp_path: Path, target: Target) -> None:
    """Those that name it themselves, and those of `messages_to_dict`."""
    said: list[Any] = [
        ChatMessage(content="one", role="user", id="h-1"),
        ChatMessage(content="two", role="assistant"),
        *messages_to_dict([HumanMessage("three", id="h-2"), AIMessage("four")]),
        ChatMessage(content="five", role="critic"),
    ]
    async with agent(Appended, f"sqlite:///{tmp_path}/old.db") as run:
        await run("t", messages=said)
    status, output = await typed(target, f"sqlite:///{tmp_path}/old.db")
    assert (status, output.splitlines()[-1]) == (1, f"  t: role: 'critic' is none of {ROLES}")
    assert target.rows("role, content") == [
        ("user", "one"),
        ("assistant", "two"),
        ("user", "three"),
        ("assistant", "four"),
    ]
    assert {"h-1", "h-2"} < {one for (one,) in target.rows("message_id")}


async def test_a_copy_of_a_file_is_read(tmp_path: Path, target: Target) -> None:
    """Copies have no write-ahead log, which a saver that may write would begin."""
    async with agent(Appended, f"sqlite:///{tmp_path}/old.db") as run:
        await run("t", messages=[HumanMessage("hi")])
    execute(f"sqlite:///{tmp_path}/old.db", f"VACUUM INTO '{tmp_path}/copy.db'")
    before = (tmp_path / "copy.db").read_bytes()
    assert await typed(target, f"sqlite:///{tmp_path}/copy.db") == (
        0,
        "turns of session: 1 new, 0 there already\n",
    )
    assert (tmp_path / "copy.db").read_bytes() == before


async def test_threads_are_read_a_page_at_a_time(tmp_path: Path, target: Target) -> None:
    """All of them, those with the same beginning included."""
    address = f"sqlite:///{tmp_path}/old.db"
    async with agent(Appended, address) as run:
        await run("t", messages=[HumanMessage("hi")])
    execute(
        address,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?), newest AS "
        "(SELECT * FROM checkpoints ORDER BY checkpoint_id DESC LIMIT 1) INSERT INTO checkpoints "
        "SELECT 't' || i, '', checkpoint_id, NULL, type, checkpoint, metadata FROM newest, n",
        2 * IDS_AT_ONCE,
    )
    _, output = await typed(target, address)
    assert output == f"turns of session: {2 * IDS_AT_ONCE + 1} new, 0 there already\n"


async def test_what_the_page_shows_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the threads of an agent with a tool."""
    monkeypatch.chdir(tmp_path)
    (content,) = blocks(PAGE, "Try it", "toml")
    (tmp_path / "cutover.toml").write_text(content, "utf-8")
    async with agent(Appended, f"sqlite:///{tmp_path}/old.sqlite") as run:
        await run("t", messages=ASKED)
    await asyncio.to_thread(type_page, "Threads")


async def typed(target: Target, source: str, *more: str) -> tuple[int, str]:
    """Type the import."""
    return await target.type_aside("import threads", source, *more)
