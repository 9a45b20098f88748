"""A flow whose reader leaves: nothing of it goes on, nor has it gone on before the reader asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any, cast

import pytest

from contract.errors import Paused
from contract.flows.chat import ChatOptions, ChatRequest
from contract.flows.pipeline import PipelineOptions
from contract.flows.session import SessionOptions, SessionRequest
from contract.model import Chunk, ToolCallDelta
from effects.tape import Exchange, TapeSession
from tests.support.companion_turns import ASKING, STOP, Visit, calling, image, turn
from tests.support.flow_runs import STACKS, Case, Scene
from tests.support.ops_turns import DISK, MEMORY, RESTART, YES, shift, steps
from tests.support.pipeline_turns import Talk
from tests.support.session_turns import Saying

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
SLOW = calling(("slow", "{}"), ("dice", "{}"), text="x")
TOOLS = {"pay": "1", "dice": "2", "slow": "1"}
SCENES: dict[str, Scene] = {
    "chat": CASE,
    "session": TALK,
    "pipeline": Talk(options=PipelineOptions(token_limit=1)),
    "ops": shift("hm", steps(DISK, MEMORY), steps(RESTART), human=(YES,)),
    "companion": Visit(turn(), answers=(PAYING, STOP), tools=TOOLS),
    "a question": Visit(turn(), answers=(ASKING, STOP)),
    "a picture": Visit(image()),
}
CLOSED: list[tuple[Scene, int]] = [
    *((CASE, events) for events in range(8)),
    *(
        (Visit(turn(), answers=(SLOW, STOP), tools=TOOLS, slow={"slow": 5}), events)
        for events in range(6)
    ),
    *((Talk(), events) for events in range(4)),
    *((shift("hm", steps(DISK, MEMORY)), events) for events in range(8)),
]


def opened(stack: str, scene: Scene) -> tuple[Any, TapeSession, Exchange]:
    """Open a flow on an exchange of its own."""
    exchange = scene.world().exchange()
    run = TapeSession(exchange, stack)
    flow = STACKS[stack].flows[scene.spec.name]
    return cast("AsyncIterator[Any]", flow(scene.request, run.effects())), run, exchange


@pytest.mark.parametrize(("scene", "events"), CLOSED, ids=[f"{s.spec.name}-{n}" for s, n in CLOSED])
async def test_a_closed_flow_leaves_no_task(stack: str, scene: Scene, events: int) -> None:
    """Wherever it stood: not even tools it waited for, the pumps of the exchange apart."""
    stream, _, exchange = opened(stack, scene)
    for _ in range(events):
        await anext(stream)
    await stream.aclose()
    left = {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}
    await exchange.close()
    assert {name for name in left if not name.startswith("pump")} == set()


@pytest.mark.parametrize("scene", SCENES)
async def test_nothing_is_done_while_the_reader_has_an_event(stack: str, scene: str) -> None:
    """It may leave before it has passed it on: then no tool has run, and no reply is stored."""
    stream, run, exchange = opened(stack, SCENES[scene])
    async with aclosing(stream) as events:
        with suppress(Paused):
            async for _ in events:
                made = len(run.plays)
                await asyncio.sleep(60.0)
                assert len(run.plays) == made
    await exchange.close()
