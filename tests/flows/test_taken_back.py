"""What a model has said and no provider takes back: every flow tells it in a form they take."""

from __future__ import annotations

import pytest

from contract.flows.chat import ChatRequest
from contract.flows.session import SessionRequest
from contract.model import (
    AssistantMessage,
    Chunk,
    ToolCall,
    ToolCallDelta,
    ToolMessage,
    UserMessage,
)
from contract.stores import Turn
from rules.conversation import NO_NAME
from tests.support.companion_turns import Visit, turn
from tests.support.flow_runs import Answer, Case, Scene, play, same_on_both
from tests.support.session_turns import House, Saying

pytestmark = pytest.mark.virtual

STOP: Answer = (Chunk(text="ok"), Chunk(finish="stop"))
SILENT: Answer = (Chunk(text=" "), Chunk(finish="stop"))
MADE_UP = "functions.dice!"
CALLS: Answer = (
    Chunk(tool_calls=(ToolCallDelta(0, "a", MADE_UP, "{}"), ToolCallDelta(1, "b", "dice", "{}"))),
    Chunk(finish="tool_calls"),
)
TOOLS = {"dice": "4"}
BEFORE = (
    Turn(message_id="h0", role="user", content="a", chat_id="s"),
    Turn(message_id="h1", role="assistant", content=" ", chat_id="s"),
    Turn(message_id="h2", role="user", content="b", chat_id="s"),
)


def calling(flow: str) -> Scene:
    """A turn of a flow in which the model calls what there is not, beside what there is."""
    answers = (CALLS, STOP)
    if flow == "chat":
        return Case(ChatRequest(message_id="m", content="hi"), answers=answers, tools=TOOLS)
    if flow == "companion":
        return Visit(turn("hi"), answers=answers, tools=TOOLS)
    return Saying(body=SessionRequest(message="hi"), begins="s", answers=answers, tools=TOOLS)


def talking(flow: str) -> Scene:
    """A turn of a flow behind a reply without text."""
    if flow == "chat":
        body = ChatRequest(message_id="m", content="c", chat_id="s")
        return Case(body, answers=(STOP,), turns=BEFORE)
    return Visit(turn("c"), answers=(STOP,), turns=BEFORE)


@pytest.mark.parametrize("flow", ["chat", "companion", "session"])
async def test_a_made_up_name_is_told_by_another(stack: str, flow: str) -> None:
    """The call is run by the name it was made with, and it is that which the client sees."""
    played = await play(stack, calling(flow))
    assert [call.name for call in played.world.tools.calls] == [MADE_UP, "dice"]
    assert played.asked[1].messages[2:] == (
        AssistantMessage(None, (ToolCall("a", NO_NAME, "{}"), ToolCall("b", "dice", "{}"))),
        ToolMessage("a", "Error: unknown_tool"),
        ToolMessage("b", "4"),
    )
    wire = b"".join(played.frames).decode()
    assert (MADE_UP in wire, NO_NAME in wire) == (flow != "session", False)


@pytest.mark.parametrize("flow", ["chat", "companion"])
async def test_a_reply_without_text_is_not_told(stack: str, flow: str) -> None:
    """What users said before and behind it is."""
    played = await play(stack, talking(flow))
    assert played.asked[0].messages[1:] == tuple(map(UserMessage, ("a", "b", "c")))


async def test_a_session_goes_on_behind_a_reply_without_text(stack: str) -> None:
    """It is kept as the reply it was, and not told."""
    house = House()
    first = SessionRequest(message="a")
    await play(stack, Saying(body=first, begins="s", house=house, answers=(SILENT,)))
    then = SessionRequest(message="b", session_id="s")
    played = await play(stack, Saying(body=then, house=house, answers=(STOP,)))
    assert played.asked[0].messages[1:] == (UserMessage("a"), UserMessage("b"))
    assert [one.content for one in house.conversations.turns] == ["a", " ", "b", "ok"]


@pytest.mark.parametrize(("first", "second"), [("legacy", "graph"), ("graph", "legacy")])
async def test_both_stacks_tell_it_alike(first: str, second: str) -> None:
    """Each from the other's tape."""
    for flow in ("chat", "companion", "session"):
        await same_on_both(calling(flow), first, second)
    for flow in ("chat", "companion"):
        await same_on_both(talking(flow), first, second)
