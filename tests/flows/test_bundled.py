"""The bundled messages and the simulated provider's faults, on both stacks."""

from pathlib import Path
from typing import cast

import msgspec
import pytest

from contract.flows.chat import CHAT, ChatOptions, ChatRequest
from effects.clock import ManualClock
from effects.model import Script
from effects.testing import World
from effects.tools import ScriptedTools, ToolRegistry, builtin_tools
from loadtests.simulator import Cut, ErrorEvent, HttpError, NoDone, Profile, SilentBeforeFirst
from loadtests.simulator.profile import Ending, Stall
from tests.flows.playing import DIRECTIONS, STACKS, Case, Played, begin, replay
from tests.flows.simulated import simulated

FILE = Path(__file__).resolve().parents[2] / "cutover" / "demo_messages.jsonl"
FOREVER = 86_400.0

pytestmark = pytest.mark.virtual


def messages() -> list[ChatRequest]:
    """Read the bundled requests; their notes are for people."""
    return [msgspec.json.decode(line, type=ChatRequest) for line in FILE.read_bytes().splitlines()]


def world(script: Script) -> World:
    """Build a world with the built-in tools."""
    registry = ToolRegistry(builtin_tools(ManualClock()))
    return World(script, tools=cast("ScriptedTools", registry))


async def exchanged(world_: World, body: ChatRequest, first: str, second: str) -> Played:
    """Serve one request in a world others are served in too, and compare the other stack."""
    case = Case(body)
    exchange = world_.exchange(live=world_.live())
    drive = begin(STACKS[first], case, exchange)
    reader = begin(STACKS[second], case, exchange, "shadow", "nearest")
    assert await drive.wait_stopped(FOREVER)
    await exchange.close()
    assert await reader.wait_stopped(FOREVER)
    served = Played(drive, exchange, world_)
    replayed = await replay(STACKS[second], case, served.tape)
    for other in (Played(reader, exchange, world_), replayed):
        assert other.frames == served.frames
        assert other.calls == served.calls
        assert other.hows == {"exact"}
        assert other.unplayed == []
    return served


@pytest.mark.untraced
@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
async def test_all_bundled_messages_are_answered_alike(first: str, second: str) -> None:
    """One after another in one world, so that conversations have their history."""
    shared = world(simulated())
    served = [await exchanged(shared, body, first, second) for body in messages()]
    assert len(served) >= 66
    assert all(played.ended[0] == "completed" for played in served)
    tools = [sum(label == "tools.run" for label, *_ in played.calls) for played in served]
    assert sum(count >= 2 for count in tools) >= 8
    history = [args for played in served for label, _, args in played.calls if "history" in label]
    assert len(history) == len(served)


async def test_the_conversation_goes_on_when_the_stack_changes_between_turns() -> None:
    """A chat served by both stacks in turn reads like one served by either alone."""
    replies = []
    for order in (["legacy"] * 4, ["graph"] * 4, ["legacy", "graph"] * 2):
        shared = world(simulated())
        turns = [body for body in messages() if body.chat_id == "chat-garden"][:4]
        served = [
            await exchanged(shared, body, stack, "graph" if stack == "legacy" else "legacy")
            for body, stack in zip(turns, order, strict=True)
        ]
        replies.append([played.frames[-2] for played in served])
    assert replies[0] == replies[1] == replies[2]


FAULTS: list[Ending] = [
    Cut(after=0),
    Cut(after=3),
    ErrorEvent(after=3),
    HttpError(status=429),
    HttpError(status=500),
    NoDone(),
    SilentBeforeFirst(),
    Stall(after=2),
]


@pytest.mark.parametrize("ending", FAULTS, ids=repr)
@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
async def test_a_provider_in_trouble_looks_the_same(
    ending: Ending, first: str, second: str
) -> None:
    """Whatever the provider breaks, at the start or in the middle, in a first or a later round."""
    bodies = [body for body in messages() if body.message_id in {"demo-001", "demo-018"}]
    for reasoning in (0, 8):
        profile = Profile(ending=ending, chunk=4, rate=20.0, reasoning=reasoning)
        for body in bodies:
            played = await exchanged(world(simulated(profile)), body, first, second)
            failed = not isinstance(ending, NoDone)
            assert played.frames[-2:] == ending_of(played, failed=failed)


def ending_of(played: Played, *, failed: bool) -> list[bytes]:
    """Give the two frames a stream must end with."""
    events = CHAT.failure(ChatOptions(), "any", played.run.frames[1].event)
    if failed:
        return [CHAT.encode(event) for event in events]
    return [played.frames[-2], CHAT.encode(events[-1])]
