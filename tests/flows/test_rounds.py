"""What the model is asked, round by round, and which tools run."""

from typing import Any

import pytest

from contract.flows.chat import ChatOptions, ChatRequest, ModelOverrides
from contract.model import (
    AssistantMessage,
    Chunk,
    SystemMessage,
    ToolCall,
    ToolCallDelta,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from contract.stores import Turn
from effects.model import Step
from tests.support.flow_runs import Answer, Case, play

pytestmark = pytest.mark.virtual

STOP: Answer = (Chunk(text="ok"), Chunk(finish="stop"))


def calling(*calls: tuple[str, str, str], text: str = "") -> Answer:
    """Answer with calls (id, name, arguments)."""
    said: tuple[Step, ...] = (Chunk(text=text),) if text else ()
    deltas = (ToolCallDelta(index, *call) for index, call in enumerate(calls))
    return (*said, Chunk(tool_calls=tuple(deltas)), Chunk(finish="tool_calls"))


def ask(**fields: Any) -> ChatRequest:
    """Build a request."""
    return ChatRequest(message_id="m", content="hi", **fields)


@pytest.mark.parametrize(("name", "sent"), [("Maya", "[Maya]: hi"), (None, "hi")])
async def test_the_user_is_quoted_by_name(stack: str, name: str | None, sent: str) -> None:
    """`[user_name]: content`, or just the content."""
    played = await play(stack, Case(ask(user_name=name), answers=(STOP,)))
    (call,) = played.asked
    assert isinstance(call.messages[0], SystemMessage)
    assert "2026-01-01" in call.messages[0].content
    assert call.messages[1:] == (UserMessage(sent),)


async def test_a_message_without_content_is_looked_up(stack: str) -> None:
    """With the name it was stored under."""
    turn = Turn(message_id="m", role="user", content="stored", user_name="Lin", chat_id="c")
    earlier = Turn(message_id="e", role="user", content="before", chat_id="c")
    body = ChatRequest(message_id="m")
    played = await play(stack, Case(body, answers=(STOP,), turns=(earlier, turn)))
    assert played.asked[0].messages[1:] == (UserMessage("before"), UserMessage("[Lin]: stored"))


async def test_earlier_turns_of_the_same_chat_are_shown(stack: str) -> None:
    """Twenty at most, within the budget, the newest first kept, oldest first shown."""
    turns = tuple(
        Turn(message_id=f"h{n}", role="user", content=f"turn {n}", chat_id="cd"[n % 2])
        for n in range(60)
    )
    played = await play(stack, Case(ask(chat_id="c"), answers=(STOP,), turns=turns))
    shown = played.asked[0].messages[1:-1]
    assert shown == tuple(UserMessage(f"turn {n}") for n in range(20, 60, 2))
    tight = ChatOptions(history_tokens=5)
    played = await play(stack, Case(ask(chat_id="c"), tight, (STOP,), turns))
    assert played.asked[0].messages[1:-1] == (UserMessage("turn 56"), UserMessage("turn 58"))


async def test_the_model_is_asked_with_the_defaults_or_what_the_request_sets(stack: str) -> None:
    """gpt-4.1 at 0.7 with tools; each can be set, also to zero and off."""
    played = await play(stack, Case(ask(), answers=(STOP,), tools={"dice": "4"}))
    (call,) = played.asked
    assert (call.model_id, call.temperature, call.max_tokens) == ("gpt-4.1", 0.7, None)
    assert (len(call.tools), call.tool_choice) == (1, "auto")
    wanted = ModelOverrides(model_id="m2", temperature=0.0, max_tokens=9, enable_tools=False)
    body = ask(model_config=wanted)
    played = await play(stack, Case(body, answers=(STOP,), tools={"dice": "4"}))
    (call,) = played.asked
    assert (call.model_id, call.temperature, call.max_tokens) == ("m2", 0.0, 9)
    assert (call.tools, call.tool_choice) == ((), None)
    assert played.world.count("tools.list") == 0


async def test_a_round_is_told_to_the_model(stack: str) -> None:
    """The calls with content null, then every answer in index order, errors by their code."""
    tools: dict[str, str | ToolResult] = {"dice": "4", "boom": ToolResult(error="tool_failed")}
    first = calling(("a", "boom", "{}"), ("b", "dice", '{"x":1}'), ("c", "nope", "{"))
    played = await play(stack, Case(ask(), answers=(first, STOP), tools=tools))
    assert played.asked[1].messages[2:] == (
        AssistantMessage(
            None,
            (
                ToolCall("a", "boom", "{}"),
                ToolCall("b", "dice", '{"x":1}'),
                ToolCall("c", "nope", "{"),
            ),
        ),
        ToolMessage("a", "Error: tool_failed"),
        ToolMessage("b", "4"),
        ToolMessage("c", "Error: unknown_tool"),
    )
    shown = [news for _, _, news in played.sends if news]
    assert shown[3:] == ["boom error", "dice done", "nope error"]


async def test_text_before_calls_is_that_rounds_content(stack: str) -> None:
    """Not the whole reply so far; the wire's content is cumulative over all rounds."""
    answers = (calling(("a", "dice", "{}"), text="one "), calling(("b", "dice", "{}"), text="two "))
    played = await play(stack, Case(ask(), answers=(*answers, STOP), tools={"dice": "4"}))
    said = [it.content for it in played.asked[2].messages if isinstance(it, AssistantMessage)]
    assert said == ["one ", "two "]
    assert played.events[-2]["content"] == "one two ok"


@pytest.mark.parametrize("limit", [0, 1, 3])
async def test_after_the_last_iteration_the_model_may_not_call(stack: str, limit: int) -> None:
    """One last call with `tool_choice` none; what it calls all the same is not run."""
    body = ask(model_config=ModelOverrides(max_tool_iterations=limit))
    endless = (calling(("", "dice", "{}"), text="x"),)
    played = await play(stack, Case(body, answers=endless, tools={"dice": "4"}))
    assert [call.tool_choice for call in played.asked] == ["auto"] * limit + ["none"]
    assert len(played.world.tools.calls) == limit
    assert played.events[-2] == {"step": "SUCCESS", "content": "x" * (limit + 1)}


async def test_the_usual_limit_is_ten(stack: str) -> None:
    """Then the eleventh call ends the reply."""
    played = await play(
        stack, Case(ask(), answers=(calling(("", "dice", "{}")),), tools={"dice": "4"})
    )
    assert len(played.asked) == 11
    assert played.asked[-1].tool_choice == "none"


async def test_missing_and_repeated_ids_become_our_own(stack: str) -> None:
    """`call_{round}_{index}`, in the same round and across rounds."""
    first = calling(("", "dice", "{}"), ("s", "dice", "{}"), ("s", "dice", "{}"))
    second = calling(("s", "dice", "{}"), ("t", "dice", "{}"))
    played = await play(stack, Case(ask(), answers=(first, second, STOP), tools={"dice": "4"}))
    ids = [call.id for call in played.world.tools.calls]
    assert ids == ["call_0_0", "s", "call_0_2", "call_1_0", "t"]


async def test_a_call_is_put_together_from_its_pieces(stack: str) -> None:
    """Its first id counts; names and arguments add up."""
    pieces = (
        ToolCallDelta(0, "", "di"),
        ToolCallDelta(0, "first", "ce", '{"a"'),
        ToolCallDelta(0, "second", "", ":1}"),
    )
    answer = (*(Chunk(tool_calls=(piece,)) for piece in pieces), Chunk(finish="tool_calls"))
    played = await play(stack, Case(ask(), answers=(answer, STOP), tools={"dice": "4"}))
    assert played.world.tools.calls == [ToolCall("first", "dice", '{"a":1}')]


async def test_with_tools_off_a_call_is_not_run(stack: str) -> None:
    """A model that calls what it was not offered has said what it said."""
    body = ask(model_config=ModelOverrides(enable_tools=False))
    played = await play(stack, Case(body, answers=(calling(("a", "dice", "{}"), text="hm"),)))
    assert played.events[-2] == {"step": "SUCCESS", "content": "hm"}
    assert played.world.tools.calls == []
