"""A flow whose reader leaves: nothing of it goes on."""

import asyncio
from typing import Any, cast

import pytest

from contract.chat import ChatOptions, ChatRequest
from contract.model import Chunk, ToolCallDelta
from effects.run import Run
from tests.flows.playing import STACKS, Case

pytestmark = pytest.mark.virtual

CALLS = tuple(ToolCallDelta(at, f"c{at}", name, "{}") for at, name in enumerate(("a", "b")))
CASE = Case(
    ChatRequest(message_id="m", content="x"),
    ChatOptions(yield_interval=0),
    ((Chunk(text="t"), Chunk(tool_calls=CALLS), Chunk(finish="tool_calls")), (Chunk(text="u"),)),
    tools={"a": "1", "b": "2"},
    slow={"a": 1.0, "b": 5.0},
)


async def tasks_after(stack: str, events: int) -> set[str]:
    """Read so many events, close the flow, and name the tasks of the flow that are left."""
    exchange = CASE.world().exchange()
    flow = STACKS[stack].flows["chat"]
    stream = cast("Any", flow(CASE.request, Run(exchange, stack).effects()))
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
