"""A flow whose reader leaves: nothing of it goes on, nor has it gone on before he came back."""

import asyncio
from contextlib import aclosing, suppress
from typing import Any, cast

import pytest

from contract.errors import Paused
from contract.flows.chat import ChatOptions, ChatRequest
from contract.flows.session import SessionOptions, SessionRequest
from contract.model import Chunk, ToolCallDelta
from effects.tape import TapeSession
from tests.flows.companion.visits import ASKING, STOP, Visit, calling, image, turn
from tests.flows.playing import STACKS, Case, Scene
from tests.flows.session.conversing import Saying

pytestmark = pytest.mark.virtual

CALLS = tuple(ToolCallDelta(at, f"c{at}", name, "{}") for at, name in enumerate(("a", "b")))
CASE = Case(
    ChatRequest(message_id="m", content="x"),
    ChatOptions(yield_interval=0),
    ((Chunk(text="t"), Chunk(tool_calls=CALLS), Chunk(finish="tool_calls")), (Chunk(text="u"),)),
    tools={"a": "1", "b": "2"},
    slow={"a": 1.0, "b": 5.0},
)

TALK = Saying(
    body=SessionRequest(message="x", session_id="s", user_id="u"),
    options=SessionOptions(unknown_session="create", extract_from=2),
    answers=CASE.answers,
    learnt=(Chunk(text='["a fact"]'),),
    tools=CASE.tools,
)
PAYING = calling(("pay", "{}"), ("dice", "{}"), text="x")
SCENES: dict[str, Scene] = {
    "chat": CASE,
    "session": TALK,
    "companion": Visit(turn(), answers=(PAYING, STOP), tools={"pay": "1", "dice": "2"}),
    "a question": Visit(turn(), answers=(ASKING, STOP)),
    "a picture": Visit(image()),
}


async def tasks_after(stack: str, events: int) -> set[str]:
    """Read so many events, close the flow, and name the tasks of the flow that are left."""
    exchange = CASE.world().exchange()
    flow = STACKS[stack].flows["chat"]
    stream = cast("Any", flow(CASE.request, TapeSession(exchange, stack).effects()))
    for _ in range(events):
        await anext(stream)
    await stream.aclose()
    left = {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}
    await exchange.close()
    return {name for name in left if not name.startswith("pump")}


@pytest.mark.parametrize("events", range(8))
async def test_a_closed_flow_leaves_no_task(stack: str, events: int) -> None:
    """Wherever it stood: not even tools it waited for, the pumps of the exchange apart."""
    assert await tasks_after(stack, events) == set()


@pytest.mark.parametrize("scene", SCENES)
async def test_nothing_is_done_while_the_reader_has_an_event(stack: str, scene: str) -> None:
    """He may leave before he has passed it on: then no tool is to have run, no reply to be kept."""
    case = SCENES[scene]
    exchange = case.world().exchange()
    run = TapeSession(exchange, stack)
    flow = STACKS[stack].flows[case.spec.name](case.request, run.effects())
    async with aclosing(cast("Any", flow)) as events:
        with suppress(Paused):
            async for _ in events:
                made = len(run.plays)
                await asyncio.sleep(60.0)
                assert len(run.plays) == made
    await exchange.close()
