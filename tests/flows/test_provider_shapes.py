"""Every shape of a provider's answer in a chat on both stacks, over a loopback socket."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from contract.flow import FlowSpec, Request
from contract.flows.chat import CHAT, ChatOptions, ChatRequest, ModelOverrides
from effects.tape import Tape
from effects.testing import World
from effects.tools import ScriptedTools
from tests.support.flow_runs import DIRECTIONS, FOREVER, STACKS, Played, begin
from tests.support.loopback_provider import in_turn, once, registry_of, serving
from tests.support.misbehaving_providers import saying
from tests.support.provider_shapes import SHAPES, Shape

pytestmark = [pytest.mark.sockets, pytest.mark.untraced]

BODY = ChatRequest(
    message_id="m1", content="Hello", model_config=ModelOverrides(model_id="m", enable_tools=True)
)


@dataclass(frozen=True)
class Asked:
    """A chat with model `m`."""

    taken: str = ""

    @property
    def spec(self) -> FlowSpec:
        """The flow of the request."""
        return CHAT

    @property
    def request(self) -> Request[ChatRequest, ChatOptions]:
        """The request as the flow gets it."""
        return Request(BODY, ChatOptions(wire="extended"))

    def world(self) -> World:
        """Return a new world."""
        return World(tools=ScriptedTools({"sun": "up", "moon": "down"}))


async def chat(shape: Shape, first: str, second: str) -> tuple[Played, Played]:
    """Ask on one stack; the other one reads its tape."""
    case = Asked()
    world = case.world()
    async with (
        serving(in_turn(shape.answer, saying("Done"))) as provider,
        registry_of(provider.entry()) as registry,
    ):
        exchange = world.exchange(Tape(), live=world.live(model=once(registry)))
        run = begin(STACKS[first], case, exchange)
        reader = begin(STACKS[second], case, exchange, "shadow", "nearest")
        assert await run.wait_stopped(FOREVER)
        await exchange.close()
        assert await reader.wait_stopped(FOREVER)
    return Played(run, exchange, world), Played(reader, exchange, world)


@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
async def test_a_chat_says_what_came_of_it(shape: Shape, first: str, second: str) -> None:
    """SUCCESS with the whole text, or FAILED with the fault; the same on both stacks."""
    served, other = await chat(shape, first, second)
    assert other.frames == served.frames
    expected = shape.expected
    last, end = served.events[-2:]
    assert end["step"] == "END"
    if expected.fault is not None:
        assert (last["step"], last["code"]) == ("FAILED", expected.fault)
        return
    text = "Done" if expected.calls else expected.text or expected.refusal
    assert (last["step"], last["content"]) == ("SUCCESS", text)
    called = [(call.name, call.arguments) for call in served.world.tools.calls]
    assert called == [(call.name, call.arguments) for call in expected.calls]
