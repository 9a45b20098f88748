"""A reply that uses tools, and houses whose assigned stack may be faulty."""

from __future__ import annotations

from typing import Any

import msgspec

from contract.flow import Event, Flow
from contract.flows.chat import ChatOptions, ChatRequest, Send, Success
from contract.model import Chunk, ToolCallDelta, Usage
from effects.model import Step, Wait
from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from router.stack import StackName
from tests.support.flow_runs import Case
from tests.support.router_world import House, Rules, house_with

FLOWS: dict[StackName, Flow] = {"legacy": LEGACY["chat"], "graph": GRAPH["chat"]}
ASSIGNED: list[StackName] = ["legacy", "graph"]


def named(message_id: str, **fields: Any) -> ChatRequest:
    """Build a request."""
    return ChatRequest(message_id=message_id, content="hi", **fields)


def priced(_model: str, _usage: Usage) -> float:
    """Let every call cost the same."""
    return 0.5


def pieces(*texts: str) -> tuple[Step, ...]:
    """Stream texts, one each quarter of a second."""
    return tuple(step for text in texts for step in (Wait(0.25), Chunk(text=text)))


def called(*names: str) -> Chunk:
    """Call tools."""
    return Chunk(
        tool_calls=tuple(ToolCallDelta(at, f"c{at}", name, "{}") for at, name in enumerate(names))
    )


ANSWERS: tuple[tuple[Step, ...], ...] = (
    (*pieces("Let ", "me ", "see"), called("dice", "calc"), Chunk(finish="tool_calls")),
    (*pieces(" it", " is", " four", "."), Chunk(finish="stop"), Chunk(usage=Usage(1, 2, 3))),
)
CASE = Case(
    ChatRequest(message_id="m", content="hi", chat_id="c"),
    ChatOptions(yield_interval=0.25),
    ANSWERS,
    tools={"dice": "4", "calc": "42"},
    slow={"dice": 0.75, "calc": 0.25},
)


def house(
    assigned: StackName, faulty: Flow, *, shadow: float = 0.0, stand_in: bool = True
) -> House:
    """Build a house whose assigned stack is faulty and whose other stack is not."""
    rules = Rules(assigned=assigned, shadow=shadow, stand_in=stand_in)
    return house_with(CASE, rules, faulty)


async def undisturbed(assigned: StackName) -> list[bytes]:
    """Return the stream as it is when nothing breaks."""
    async with house(assigned, FLOWS[assigned]) as quiet:
        return (await quiet.ask()).wire


def nothing_twice(made: House) -> None:
    """One model call a round, each tool once, each turn stored once."""
    assert made.world.count("model.stream") == 2
    assert sorted(made.world.tools.called) == ["calc", "dice"]
    assert made.world.count("conversations.put") == 2
    assert made.world.count("locks.acquire") == 1
    assert [turn.role for turn in made.world.conversations.turns] == ["user", "assistant"]


def both(assigned: StackName, first: Any, second: Any, **rules: Any) -> House:
    """Build a house with two flows, the assigned one first."""
    flows = {"legacy": first, "graph": second}
    if assigned == "graph":
        flows = {"graph": first, "legacy": second}
    return House(CASE, Rules(assigned=assigned, **rules), **flows)


def other(assigned: StackName) -> StackName:
    """Name the stack that stands in."""
    return "graph" if assigned == "legacy" else "legacy"


def shouted(event: Event) -> Event:
    """Change the text to upper case."""
    if isinstance(event, Send | Success):
        return msgspec.structs.replace(event, content=event.content.upper())
    return event
