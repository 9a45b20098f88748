"""The page on memory: whose entries are found, and learnt where."""

from __future__ import annotations

from contract.flow import Request
from contract.flows.companion import CompanionOptions, MessageTurn
from contract.flows.session import SessionOptions, SessionRequest
from contract.model import ToolCall
from contract.stores import MemoryEntry
from effects.memory import InMemoryMemory
from effects.tools import ToolRegistry
from effects.tools.builtin import memory_tool
from rules import companion, session

ENTRY = MemoryEntry(memory_id="m", user_id="ann", text="likes tea", session_id="s")
SEARCH = ToolCall("c", "search_memory", '{"query":"tea"}')


async def test_who_finds_what_was_learnt_in_the_session_that_asks() -> None:
    """A companion and the tool do, a session does not; without a user the tool finds nothing."""
    memory = InMemoryMemory((ENTRY,))
    turn = MessageTurn(session_id="s", message="tea", user_id="ann")
    wanted = companion.recall(Request(turn, CompanionOptions()))
    said = SessionRequest(session_id="s", message="tea", user_id="ann")
    unwanted = session.recall(Request(said, SessionOptions()), new=False)
    assert wanted is not None
    assert unwanted is not None
    assert await memory.recall("recall", wanted) == (ENTRY,)
    assert await memory.recall("recall", unwanted) == ()
    tools = ToolRegistry((memory_tool(memory),))
    assert (await tools.for_user("ann").run("tools", SEARCH)).content == '["likes tea"]'
    assert (await tools.for_user(None).run("tools", SEARCH)).content == "[]"
