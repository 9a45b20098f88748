"""The companion pauses: it goes on where it was, on either stack, and nothing is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
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
from tests.router.resume.test_pauses import BOTH
from tests.support.companion_turns import (
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
from tests.support.faulty_stacks import after, crash
from tests.support.patience import PATIENCE_S
from tests.support.pausing_flow import Reply

pytestmark = [pytest.mark.virtual]
both = pytest.mark.parametrize(("first", "then"), BOTH)
each = pytest.mark.parametrize("stack", ["legacy", "graph"])

FLOWS: Mapping[str, Flow] = {"legacy": LEGACY["companion"], "graph": GRAPH["companion"]}
ASKED = Visit(turn(), answers=(ASKING, STOP))
LOOKED = Visit(image())
REST = ["tool_result", "text", "text", "done"]
WHOLE = [("user", "hello"), ("assistant", "Wait. 好的。")]


async def paused_at(here: Place, stack: StackName, visit: Visit = ASKED) -> Reply:
    """Take a turn on a stack, to its question."""
    here.assigned = stack
    reply = await here.visit(visit.body)
    assert reply.events[-1] == {"type": "done", "status": "suspended"}
    return reply


async def resumed(here: Place, paused: Reply, stack: StackName, leaves: int = -1) -> Reply:
    """Go on from an answered question on a stack, as after a restart."""
    here.assigned = stack
    here.start()
    return await here.go_on(paused.hitl_id, leaves)


def names(reply: Reply) -> list[str]:
    """Name the events of a reply."""
    return [event["type"] for event in reply.events]


@both
async def test_a_question_goes_on_on_either_stack(first: StackName, then: StackName) -> None:
    """The model gets the answer; the whole reply is stored, once; no call is made again."""
    here = place(ASKED)
    paused = await paused_at(here, first)
    assert names(paused) == ["emotion", "text", "hitl", "done"]
    assert here.kept == WHOLE[:1]
    await here.answer(paused.hitl_id, "edit", colour="blue")
    rest = await resumed(here, paused, then)
    assert names(rest) == REST
    assert rest.events[0]["content"] == '{"action":"edit","data":{"colour":"blue"}}'
    assert here.kept == WHOLE
    assert here.world.count("model.stream") == 2
    assert rest.stream is not None
    assert rest.stream.served_by.name == then


@both
async def test_a_question_after_a_long_text_goes_on(first: StackName, then: StackName) -> None:
    """The text before it is more than may wait for a client, and no client takes it again."""
    long = (Chunk(text="x" * 8_192),) * 40
    here = place(Visit(turn(), answers=((*long, *ASKING), (*long, *STOP))))
    paused = await paused_at(here, first)
    await here.answer(paused.hitl_id)
    async with asyncio.timeout(PATIENCE_S):
        rest = await resumed(here, paused, then)
    text = [one["content"] for one in rest.events if one["type"] == "text"]
    assert "".join(text) == "x" * 8_192 * 40 + "好的。"


@both
async def test_a_picture_is_remembered_once_confirmed(first: StackName, then: StackName) -> None:
    """An edited fact as it was edited, an emptied one not; the picture is read once."""
    here = place(LOOKED)
    paused = await paused_at(here, first, LOOKED)
    assert names(paused) == ["text", "text", "hitl", "done"]
    question = paused.events[2]
    assert question["kind"] == "memory_confirm"
    assert [it["value"] for it in question["form"]["fields"]] == ["likes tea", "has a cat"]
    await here.answer(paused.hitl_id, "edit", memory_1="likes coffee", memory_2="")
    rest = await resumed(here, paused, then)
    assert rest.said == ["\n\n已记住 1 条。", "completed"]
    query = Recall(user_id="session:s", query="coffee")
    (entry,) = await here.world.effects.memory.recall("test", query)
    assert (entry.text, entry.session_id, entry.user_id) == ("likes coffee", "s", "session:s")
    assert here.kept == [("user", "[图片]"), ("assistant", "发票 12\n\n已记住 1 条。")]
    assert here.world.count("model.stream") == 2
    assert here.world.count("memory.write") == 1


@each
async def test_a_rejected_fact_is_not_remembered(stack: StackName) -> None:
    """And the user is told."""
    here = place(LOOKED)
    paused = await paused_at(here, stack, LOOKED)
    await here.answer(paused.hitl_id, "reject")
    rest = await here.go_on(paused.hitl_id)
    assert rest.said == ["\n\n好的，这些内容没有保存。", "completed"]
    assert here.world.count("memory.write") == 0


@both
async def test_the_other_calls_of_a_round_end_before_its_question(
    first: StackName, then: StackName
) -> None:
    """They are shown in index order, run once, and a second question is an error."""
    calls = (("ask_human", "{}"), ("slow", "{}"), ("ask_human", FORM), ("pay", "{}"))
    answers = (calling(*calls, ("ask_human", FORM)), STOP)
    here = place(Visit(turn(), answers=answers, tools={"slow": "s", "pay": "p"}, slow={"slow": 9}))
    paused = await paused_at(here, first)
    shown = [(it["tool"], it["content"]) for it in paused.events if it["type"] == "tool_result"]
    assert shown == [
        ("ask_human", "Error: bad_arguments"),
        ("slow", "s"),
        ("pay", "p"),
        ("ask_human", "Error: tool_failed"),
    ]
    await here.answer(paused.hitl_id)
    rest = await resumed(here, paused, then)
    assert rest.events[0]["content"] == '{"action":"approve","data":{"colour":"red"}}'
    messages = here.world.model.calls[-1][1].messages
    ids = [getattr(it, "tool_call_id", "") for it in messages[-5:]]
    assert ids == ["c0", "c1", "c2", "c3", "c4"]
    assert here.world.count("tools.run") == 2


@both
async def test_two_pauses_in_a_row_after_two_tools_repeat_no_call(
    first: StackName, then: StackName
) -> None:
    """The first behind two tools of its round, the next in a round of its own, on either stack."""
    tools = calling(("slow", "{}"), ("pay", "{}"), ("ask_human", FORM))
    answers = (tools, ASKING, STOP)
    here = place(Visit(turn(), answers=answers, tools={"slow": "s", "pay": "p"}, slow={"slow": 9}))
    reply = await paused_at(here, first)
    for stack in (then, first):
        assert reply.events[-1]["status"] == "suspended"
        await here.answer(reply.hitl_id)
        reply = await resumed(here, reply, stack)
    assert here.kept == WHOLE
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


async def test_of_two_that_go_on_at_once_one_wins() -> None:
    """The other is refused, and nothing is remembered twice."""
    here = place(LOOKED)
    paused = await here.visit(image())
    await here.answer(paused.hitl_id)
    going = (here.go_on(paused.hitl_id), here.go_on(paused.hitl_id))
    replies = await asyncio.gather(*going, return_exceptions=True)
    refused = [(it.status, it.code) for it in replies if isinstance(it, Problem)]
    assert refused == [(409, "continued_already")]
    assert here.world.count("memory.write") == 1


@both
async def test_a_client_that_leaves_releases_the_pause(first: StackName, then: StackName) -> None:
    """The next client gets the whole rest."""
    here = place(ASKED)
    paused = await paused_at(here, first)
    await here.answer(paused.hitl_id)
    left = await here.go_on(paused.hitl_id, leaves=1)
    assert names(left) == ["tool_result"]
    rest = await resumed(here, paused, then)
    assert names(rest) == REST
    assert here.kept == WHOLE


@both
async def test_a_provider_that_failed_is_called_anew(first: StackName, then: StackName) -> None:
    """Going on once more yields the rest, and not what went wrong the last time."""
    broken = (Chunk(text="好"), Fail(Fault("model_unavailable", retryable=True)))
    here = Place(World(in_turn(ASKING, broken, STOP)))
    paused = await paused_at(here, first)
    await here.answer(paused.hitl_id)
    failed = await here.go_on(paused.hitl_id)
    assert failed.events[-2:] == [
        {"type": "error", "code": "model_unavailable"},
        {"type": "done", "status": "failed"},
    ]
    rest = await resumed(here, paused, then)
    assert names(rest) == REST
    assert here.kept == WHOLE


@both
async def test_a_store_that_failed_is_written_again(first: StackName, then: StackName) -> None:
    """Facts remembered before stay remembered, once, and are reported as they were."""
    faults = {"reply": Fault("store_unavailable", retryable=True)}
    looked = replace(LOOKED, store_fails=faults)
    here = place(looked)
    paused = await paused_at(here, first, looked)
    await here.answer(paused.hitl_id)
    failed = await here.go_on(paused.hitl_id)
    assert failed.events[-1]["status"] == "failed"
    faults.clear()
    rest = await resumed(here, paused, then)
    assert rest.events[-1]["status"] == "completed"
    assert here.world.count("memory.write") == 1
    assert rest.events[-2]["content"] == "\n\n已记住 2 条。"


async def test_a_new_turn_expires_the_question() -> None:
    """The session has gone on without the answer; the half reply is not stored."""
    here = place(ASKED)
    paused = await here.visit(turn())
    await here.visit(image("analyze_only"))
    with pytest.raises(Problem) as refused:
        await here.answer(paused.hitl_id)
    assert (refused.value.status, refused.value.code) == (410, "expired")
    assert [role for role, _ in here.kept] == ["user", "user", "assistant"]


@pytest.mark.parametrize("frames", [1, 2, 4])
@each
async def test_a_crash_is_taken_over(stack: StackName, frames: int) -> None:
    """Mid-stream, before the question and after it; the client has one unbroken stream."""
    here = Place(ASKED.world(), **{stack: after(FLOWS[stack], frames, crash)})
    paused = await paused_at(here, stack)
    await here.answer(paused.hitl_id)
    rest = await here.go_on(paused.hitl_id)
    assert rest.events[-1]["status"] == "completed"
    assert here.kept == WHOLE
    assert here.world.count("model.stream") == 2


def crashing_behind_its_end(flow: Flow) -> Flow:
    """Let a flow crash once all of its events have been sent."""

    async def broken(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        async for event in flow(request, effects):
            yield event
        await crash(effects)

    return broken


@each
async def test_a_crash_behind_the_end_leaves_no_question_open(stack: StackName) -> None:
    """The client has had the whole answer, and it is stored: there is nothing to go on with."""
    here = Place(ASKED.world(), **{stack: crashing_behind_its_end(FLOWS[stack])})
    paused = await paused_at(here, stack)
    await here.answer(paused.hitl_id)
    rest = await here.go_on(paused.hitl_id)
    assert rest.events[-1]["status"] == "completed"
    with pytest.raises(Problem) as refused:
        await here.go_on(paused.hitl_id)
    assert (refused.value.status, refused.value.code) == (409, "finished")


@pytest.mark.parametrize("visit", [ASKED, LOOKED])
@each
async def test_the_shadow_is_equal_before_and_after_a_pause(visit: Visit, stack: StackName) -> None:
    """It pauses at the same question."""
    here = place(visit)
    here.shadow = Decimal(100)
    paused = await paused_at(here, stack, visit)
    await here.answer(paused.hitl_id)
    await here.go_on(paused.hitl_id)
    states = {(line.state, line.reason): n for line, n in here.router.ledger.counts.items()}
    assert states == {("compared", "equal"): 2}


@each
async def test_a_question_that_cannot_be_stored_is_an_error_of_its_tool(stack: StackName) -> None:
    """The model is told so, and goes on."""

    async def refuse(*_: object) -> bool:
        return False

    here = place(ASKED)
    here.assigned = stack
    here.pauses.open = refuse  # type: ignore[method-assign,assignment] # a store that is out of order
    reply = await here.visit(turn())
    assert reply.events[2]["content"] == "Error: tool_failed"
    assert reply.events[-1]["status"] == "completed"


@each
async def test_a_pause_travels_through_the_engine_untouched(stack: StackName) -> None:
    """As it was raised, and no call is left open behind it."""
    world = ASKED.world()
    exchange = world.exchange()
    with pytest.raises(Paused) as paused:
        _ = [event async for event in FLOWS[stack](ASKED.request, world.run(exchange).effects())]
    await exchange.close()
    assert paused.value.hitl_id == "hitl-1"
    left = {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}
    assert left == set()


@each
async def test_memories_of_the_session_are_in_the_prompt(stack: StackName) -> None:
    """Those of no other user, nor of a user called like the session."""
    memories = (
        MemoryEntry(memory_id="1", user_id="session:s", text="likes hello"),
        MemoryEntry(memory_id="2", user_id="x", text="hates hello"),
        MemoryEntry(memory_id="3", user_id="s", text="hides hello"),
    )
    here = place(Visit(turn(), memories=memories))
    here.assigned = stack
    await here.visit(turn())
    system = str(here.world.model.calls[0][1].messages[0].content)
    found = [word for word in ("likes hello", "hates hello", "hides hello") if word in system]
    assert found == ["likes hello"]
