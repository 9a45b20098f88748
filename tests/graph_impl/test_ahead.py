"""The model is asked before the engine starts; who leaves then leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from contract.flow import FlowSpec, Request
from contract.flows.chat import CHAT, ChatOptions, ChatRequest
from contract.flows.companion import COMPANION, CompanionOptions
from contract.flows.session import SESSION, SessionOptions, SessionRequest
from contract.model import Chunk, ModelCall
from cutover.selftest.world import World
from effects.model import Step
from effects.tape import Tape, TapeSession
from graph_impl.ahead import asked_ahead
from router.serving.run import Order
from tests.flows.companion.visits import image, turn
from tests.flows.playing import FOREVER, STACKS

pytestmark = pytest.mark.virtual

GRAPH = STACKS["graph"]
REQUESTS = [
    (CHAT, Request(ChatRequest(message_id="m", content="x"), ChatOptions())),
    (SESSION, Request(SessionRequest(message="x"), SessionOptions(), session="s")),
    (COMPANION, Request(turn("x"), CompanionOptions())),
    (COMPANION, Request(image(action="analyze_only"), CompanionOptions())),
]


def engines() -> int:
    """Count the engine's runs."""
    return sum(task.get_name() == "graph run" for task in asyncio.all_tasks())


@pytest.mark.parametrize(("spec", "request_"), REQUESTS, ids=["chat", "session", "turn", "picture"])
async def test_the_model_is_asked_before_the_engine_starts(
    spec: FlowSpec, request_: Request[Any, Any]
) -> None:
    """In every flow, and once."""
    seen: list[int] = []

    def script(call: ModelCall) -> Sequence[Step]:
        del call
        seen.append(engines())
        return [Chunk(text="Hello."), Chunk(finish="stop")]

    world = World(script)
    exchange = world.exchange(Tape(), live=world.live())
    run = TapeSession(exchange, "graph")
    drive = GRAPH.drive(Order(spec, GRAPH, request_, "serving"), run, exchange.stamp)
    drive.start()
    assert await drive.gone(FOREVER)
    await exchange.close()
    assert drive.complete
    assert not drive.reported
    assert seen == [0]


def called(model_id: str) -> ModelCall:
    """Build a question."""
    return ModelCall(model_id=model_id, messages=(), temperature=0.0)


async def test_who_asks_first_has_that_answer_and_who_asks_again_another() -> None:
    """All of the answer, and no question is put twice."""
    asked: list[str] = []

    def script(call: ModelCall) -> Sequence[Step]:
        asked.append(call.model_id)
        return [Chunk(text=call.model_id), Chunk(text="!"), Chunk(finish="stop")]

    world = World(script)
    exchange = world.exchange(Tape(), live=world.live())
    async with asked_ahead(TapeSession(exchange, "graph").effects(), "s", called("one")) as effects:
        assert asked == ["one"]
        for model_id in ("one", "two"):
            heard = [chunk.text async for chunk in effects.model.stream("s", called(model_id))]
            assert heard == [model_id, "!", ""]
    await exchange.close()
    assert asked == ["one", "two"]


async def test_an_answer_nobody_reads_is_let_go_of() -> None:
    """No task is left that waits for it."""
    world = World(lambda _: [Chunk(text="t")])
    exchange = world.exchange(Tape(), live=world.live())
    async with asked_ahead(TapeSession(exchange, "graph").effects(), "s", called("one")):
        pass
    await exchange.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
