"""The companion pauses: it goes on where it was, on either stack, and nothing is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from contract.errors import Fault, Paused
from contract.flow import Event, Flow, Request
from contract.model import Chunk
from contract.ports import Effects
from contract.stores import MemoryEntry, Recall
from effects.model import Fail, in_turn
from effects.testing import World
from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from router.problems import Problem
from router.stack import StackName
from tests.flows.companion.visits import (
    ASKING,
    FORM,
    STOP,
    Place,
    Visit,
    calling,
    image,
    place,
    turn,
)
from tests.patience import PATIENCE_S
from tests.router.resume.test_pauses import BOTH

pytestmark = pytest.mark.virtual

ASKED = Visit(turn(), answers=(ASKING, STOP))
LOOKED = Visit(image())


@pytest.mark.parametrize(("first", "then"), BOTH)
async def test_a_question_goes_on_wherever_it_was_asked(first: StackName, then: StackName) -> None:
    """The model is told the answer; the whole reply is kept, once; no call is made again."""
    here = place(ASKED)
    here.assigned = first
    paused = await here.visit(turn())
    assert [one["type"] for one in paused.events] == ["emotion", "text", "hitl", "done"]
    assert paused.events[-1]["status"] == "suspended"
    assert here.kept == [("user", "hello")]
    await here.answer(paused.hitl_id, "edit", colour="blue")
    here.assigned = then
    here.start()
    rest = await here.go_on(paused.hitl_id)
    assert [one["type"] for one in rest.events] == ["tool_result", "text", "text", "done"]
    assert rest.events[0]["content"] == '{"action":"edit","data":{"colour":"blue"}}'
    assert here.kept == [("user", "hello"), ("assistant", "Wait. 好的。")]
    assert here.world.count("model.stream") == 2
    assert rest.stream is not None
    assert rest.stream.served_by.name == then


@pytest.mark.parametrize(("first", "then"), BOTH)
async def test_a_question_after_a_long_text_goes_on(first: StackName, then: StackName) -> None:
    """What was said before it is more than may wait for a client, and no client takes it again."""
    long = (Chunk(text="x" * 8_192),) * 40
    here = place(Visit(turn(), answers=((*long, *ASKING), (*long, *STOP))))
    here.assigned = first
    paused = await here.visit(turn())
    await here.answer(paused.hitl_id, "approve")
    here.assigned = then
    async with asyncio.timeout(PATIENCE_S):
        rest = await here.go_on(paused.hitl_id)
    text = [one["content"] for one in rest.events if one["type"] == "text"]
    assert "".join(text) == "x" * 8_192 * 40 + "好的。"


@pytest.mark.parametrize(("first", "then"), BOTH)
async def test_a_picture_is_remembered_once_it_is_confirmed(
    first: StackName, then: StackName
) -> None:
    """What was edited as it was edited, what was emptied not; nobody looks a second time."""
    here = place(LOOKED)
    here.assigned = first
    paused = await here.visit(image())
    assert [one["type"] for one in paused.events] == ["text", "text", "hitl", "done"]
    question = paused.events[2]
    assert question["kind"] == "memory_confirm"
    assert [it["value"] for it in question["form"]["fields"]] == ["likes tea", "has a cat"]
    await here.answer(paused.hitl_id, "edit", memory_1="likes coffee", memory_2="")
    here.assigned = then
    here.start()
    rest = await here.go_on(paused.hitl_id)
    assert rest.said == ["\n\n已记住 1 条。", "completed"]
    (entry,) = await here.world.effects.memory.recall(
        "test", Recall(user_id="session:s", query="coffee")
    )
    assert (entry.text, entry.session_id, entry.user_id) == ("likes coffee", "s", "session:s")
    assert here.kept == [("user", "[图片]"), ("assistant", "发票 12\n\n已记住 1 条。")]
    assert here.world.count("model.stream") == 2
    assert here.world.count("memory.write") == 1


@pytest.mark.parametrize("stack", ["legacy", "graph"])
async def test_what_is_rejected_is_not_remembered(stack: StackName) -> None:
    """And the user is told."""
    here = place(LOOKED)
    here.assigned = stack
    paused = await here.visit(image())
    await here.answer(paused.hitl_id, "reject")
    rest = await here.go_on(paused.hitl_id)
    assert rest.said == ["\n\n好的，这些内容没有保存。", "completed"]
    assert here.world.count("memory.write") == 0


@pytest.mark.parametrize(("first", "then"), BOTH)
async def test_the_other_calls_of_a_round_are_over_before_the_question(
    first: StackName, then: StackName
) -> None:
    """They are shown in index order, run once, and a second question is an error."""
    calls = (("ask_human", "{}"), ("slow", "{}"), ("ask_human", FORM), ("pay", "{}"))
    answers = (calling(*calls, ("ask_human", FORM)), STOP)
    here = place(Visit(turn(), answers=answers, tools={"slow": "s", "pay": "p"}, slow={"slow": 9}))
    here.assigned = first
    paused = await here.visit(turn())
    shown = [(it["tool"], it["content"]) for it in paused.events if it["type"] == "tool_result"]
    assert shown == [
        ("ask_human", "Error: bad_arguments"),
        ("slow", "s"),
        ("pay", "p"),
        ("ask_human", "Error: tool_failed"),
    ]
    await here.answer(paused.hitl_id)
    here.assigned = then
    rest = await here.go_on(paused.hitl_id)
    assert rest.events[0]["content"] == '{"action":"approve","data":{"colour":"red"}}'
    told = here.world.model.calls[-1][1].messages
    assert [getattr(it, "tool_call_id", "") for it in told[-5:]] == ["c0", "c1", "c2", "c3", "c4"]
    assert here.world.count("tools.run") == 2


@pytest.mark.parametrize(("first", "then"), BOTH)
async def test_two_pauses_in_a_row_after_two_tools_repeat_no_call(
    first: StackName, then: StackName
) -> None:
    """The first behind two tools of its round, the next in a round of its own, on either stack."""
    tools = calling(("slow", "{}"), ("pay", "{}"), ("ask_human", FORM))
    answers = (tools, ASKING, STOP)
    here = place(Visit(turn(), answers=answers, tools={"slow": "s", "pay": "p"}, slow={"slow": 9}))
    here.assigned = first
    reply = await here.visit(turn())
    for stack in (then, first):
        assert reply.events[-1]["status"] == "suspended"
        await here.answer(reply.hitl_id)
        here.assigned = stack
        reply = await here.go_on(reply.hitl_id)
    assert here.kept == [("user", "hello"), ("assistant", "Wait. 好的。")]
    assert here.world.tools.called == ["slow", "pay"]
    made = {label: here.world.count(label) for label in ("model.stream", "ids.new")}
    assert made == {"model.stream": 3, "ids.new": 2}


async def test_one_exchange_may_ask_again_and_again() -> None:
    """Each question on the stack that is assigned by then."""
    here = place(Visit(turn(), answers=(ASKING, ASKING, STOP)))
    reply = await here.visit(turn())
    for stack in ("graph", "legacy"):
        await here.answer(reply.hitl_id)
        here.assigned = stack
        reply = await here.go_on(reply.hitl_id)
    assert here.kept[-1] == ("assistant", "Wait. Wait. 好的。")
    assert here.world.count("model.stream") == 3


async def test_one_of_two_who_go_on_at_once_wins() -> None:
    """The other is told so, and nothing is remembered twice."""
    here = place(LOOKED)
    paused = await here.visit(image())
    await here.answer(paused.hitl_id)
    going = (here.go_on(paused.hitl_id), here.go_on(paused.hitl_id))
    replies = await asyncio.gather(*going, return_exceptions=True)
    told = [(it.status, it.code) for it in replies if isinstance(it, Problem)]
    assert told == [(409, "continued_already")]
    assert here.world.count("memory.write") == 1


@pytest.mark.parametrize(("first", "then"), BOTH)
async def test_a_client_that_leaves_gives_the_pause_back(first: StackName, then: StackName) -> None:
    """Whoever comes next gets the whole rest."""
    here = place(ASKED)
    here.assigned = first
    paused = await here.visit(turn())
    await here.answer(paused.hitl_id)
    left = await here.go_on(paused.hitl_id, leaves=1)
    assert [one["type"] for one in left.events] == ["tool_result"]
    here.assigned = then
    rest = await here.go_on(paused.hitl_id)
    assert [one["type"] for one in rest.events] == ["tool_result", "text", "text", "done"]
    assert here.kept == [("user", "hello"), ("assistant", "Wait. 好的。")]


@pytest.mark.parametrize(("first", "then"), BOTH)
async def test_a_provider_that_failed_is_asked_anew(first: StackName, then: StackName) -> None:
    """Whoever goes on once more gets the rest, and not what went wrong the last time."""
    broken = (Chunk(text="好"), Fail(Fault("model_unavailable", retryable=True)))
    here = Place(World(in_turn(ASKING, broken, STOP)))
    here.assigned = first
    paused = await here.visit(turn())
    await here.answer(paused.hitl_id)
    failed = await here.go_on(paused.hitl_id)
    assert failed.events[-2:] == [
        {"type": "error", "code": "model_unavailable"},
        {"type": "done", "status": "failed"},
    ]
    here.assigned = then
    rest = await here.go_on(paused.hitl_id)
    assert [one["type"] for one in rest.events] == ["tool_result", "text", "text", "done"]
    assert here.kept == [("user", "hello"), ("assistant", "Wait. 好的。")]


@pytest.mark.parametrize(("first", "then"), BOTH)
async def test_a_store_that_failed_is_told_again(first: StackName, then: StackName) -> None:
    """What was remembered before stays remembered, once, and is told as it was."""
    faults = {"reply": Fault("store_unavailable", retryable=True)}
    here = place(replace(LOOKED, store_fails=faults))
    here.assigned = first
    paused = await here.visit(image())
    await here.answer(paused.hitl_id)
    failed = await here.go_on(paused.hitl_id)
    assert failed.events[-1]["status"] == "failed"
    faults.clear()
    here.assigned = then
    rest = await here.go_on(paused.hitl_id)
    assert rest.events[-1]["status"] == "completed"
    assert here.world.count("memory.write") == 1
    assert rest.events[-2]["content"] == "\n\n已记住 2 条。"


async def test_a_new_turn_expires_the_question() -> None:
    """The session has gone on without the answer; the half reply is not kept."""
    here = place(ASKED)
    paused = await here.visit(turn())
    await here.visit(image("analyze_only"))
    with pytest.raises(Problem) as told:
        await here.answer(paused.hitl_id)
    assert (told.value.status, told.value.code) == (410, "expired")
    assert [role for role, _ in here.kept] == ["user", "user", "assistant"]


def crashing(flow: Flow, frames: int) -> Flow:
    """Crash once so many frames have been sent."""

    async def broken(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        sent = 0
        async for event in flow(request, effects):
            yield event
            sent += 1
            if sent == frames:
                raise RuntimeError

    return broken


@pytest.mark.parametrize("frames", [1, 2, 4])
@pytest.mark.parametrize("stack", ["legacy", "graph"])
async def test_a_crash_is_taken_over(stack: StackName, frames: int) -> None:
    """Mid-stream, before the question and after it; the client has one unbroken stream."""
    broken = crashing({"legacy": LEGACY, "graph": GRAPH}[stack]["companion"], frames)
    here = Place(ASKED.world(), **{stack: broken})
    here.assigned = stack
    paused = await here.visit(turn())
    await here.answer(paused.hitl_id)
    rest = await here.go_on(paused.hitl_id)
    assert paused.events[-1]["status"] == "suspended"
    assert rest.events[-1]["status"] == "completed"
    assert here.kept == [("user", "hello"), ("assistant", "Wait. 好的。")]
    assert here.world.count("model.stream") == 2


@pytest.mark.parametrize("stack", ["legacy", "graph"])
async def test_a_crash_behind_the_end_leaves_no_question_open(stack: StackName) -> None:
    """The client has had the whole answer, and it is kept: there is nothing to go on with."""
    whole = {"legacy": LEGACY, "graph": GRAPH}[stack]["companion"]

    async def broken(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        async for event in whole(request, effects):
            yield event
        raise RuntimeError

    here = Place(ASKED.world(), **{stack: broken})
    here.assigned = stack
    paused = await here.visit(turn())
    await here.answer(paused.hitl_id)
    rest = await here.go_on(paused.hitl_id)
    assert rest.events[-1]["status"] == "completed"
    with pytest.raises(Problem) as told:
        await here.go_on(paused.hitl_id)
    assert (told.value.status, told.value.code) == (409, "finished")


@pytest.mark.parametrize("visit", [ASKED, LOOKED])
@pytest.mark.parametrize("stack", ["legacy", "graph"])
async def test_the_shadow_is_equal_before_and_after_a_pause(visit: Visit, stack: StackName) -> None:
    """It pauses at the same question."""
    here = place(visit)
    here.assigned, here.shadow = stack, Decimal(100)
    paused = await here.visit(visit.body)
    await here.answer(paused.hitl_id)
    await here.go_on(paused.hitl_id)
    states = {(line.state, line.reason): n for line, n in here.router.ledger.counts.items()}
    assert states == {("compared", "equal"): 2}


@pytest.mark.parametrize("stack", ["legacy", "graph"])
async def test_without_anybody_to_ask_the_model_is_told_so(stack: StackName) -> None:
    """A question that cannot be stored is an error of its tool."""
    here = place(ASKED)
    here.assigned = stack
    here.pauses.open = _refusing  # type: ignore[method-assign,assignment] # a store that is out of order
    reply = await here.visit(turn())
    assert reply.events[2]["content"] == "Error: tool_failed"
    assert reply.events[-1]["status"] == "completed"


async def _refusing(*_: object) -> bool:
    return False


@pytest.mark.parametrize("stack", ["legacy", "graph"])
async def test_a_pause_travels_through_the_engine_untouched(stack: str) -> None:
    """As it was raised, and no call is left open behind it."""
    flow = {"legacy": LEGACY, "graph": GRAPH}[stack]["companion"]
    world = ASKED.world()
    exchange = world.exchange()

    async def read() -> None:
        async for _ in flow(ASKED.request, world.run(exchange).effects()):
            pass

    with pytest.raises(Paused) as paused:
        await read()
    await exchange.close()
    assert paused.value.hitl_id == "hitl-1"
    left = {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}
    assert left == set()


@pytest.mark.parametrize("stack", ["legacy", "graph"])
async def test_memories_of_the_session_are_told_to_the_model(stack: StackName) -> None:
    """What was remembered is recalled, and nobody else's: no user's of the session's name."""
    memories = (
        MemoryEntry(memory_id="1", user_id="session:s", text="likes hello"),
        MemoryEntry(memory_id="2", user_id="x", text="hates hello"),
        MemoryEntry(memory_id="3", user_id="s", text="hides hello"),
    )
    here = place(Visit(turn(), memories=memories))
    here.assigned = stack
    await here.visit(turn())
    system = here.world.model.calls[0][1].messages[0].content
    assert "likes hello" in str(system)
    assert "hates hello" not in str(system)
    assert "hides hello" not in str(system)
