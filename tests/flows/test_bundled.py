"""The bundled messages and the simulated provider's faults, on both stacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never, cast

import msgspec
import pytest

from contract.errors import Fault
from contract.flow import FlowSpec, Request
from contract.flows.chat import CHAT, ChatOptions, ChatRequest
from contract.model import ModelCall
from effects.local import ManualClock
from effects.model import Fail, Hang, Script, Step, Wait
from effects.model.chunks import encode_call
from effects.model.errors import status_fault
from effects.model.stream import StreamAssembler
from effects.testing import World
from effects.tools import ScriptedTools, ToolRegistry, builtin_tools
from loadtests.simulator import (
    AnswerScript,
    Complete,
    Cut,
    ErrorEvent,
    HttpError,
    NoDone,
    Profile,
    Reset,
    SilentBeforeFirst,
    script_for,
)
from loadtests.simulator.profile import Ending, Stall
from loadtests.simulator.request import Refusal, decode
from tests.support.flow_runs import DIRECTIONS, Played, same_on_both

FILE = Path(__file__).resolve().parents[2] / "cutover" / "demo_messages.jsonl"
OTHER = dict(DIRECTIONS)

pytestmark = [pytest.mark.virtual, pytest.mark.untraced]
directions = pytest.mark.parametrize(("first", "second"), DIRECTIONS)


def messages() -> list[ChatRequest]:
    """Read the bundled requests; their notes are for people."""
    return [msgspec.json.decode(line, type=ChatRequest) for line in FILE.read_bytes().splitlines()]


def simulated(profile: Profile | None = None) -> World:
    """Return a world with the built-in tools, whose model answers as the simulated provider would.

    Its pure plan is read by the real decoder.
    """
    shape = Profile(chunk=4, rate=40.0) if profile is None else profile

    def script(call: ModelCall) -> Iterator[Step]:
        request = decode(encode_call(call, "sim-chat"))
        assert not isinstance(request, Refusal)
        return steps(script_for(request, shape))

    registry = ToolRegistry(builtin_tools(ManualClock()))
    return World(cast("Script", script), tools=cast("ScriptedTools", registry))


def steps(planned: AnswerScript) -> Iterator[Step]:
    """Turn a planned answer into what a model port yields, with its times."""
    if planned.status != 200:
        yield Fail(status_fault(planned.status, {}, None))
        return
    assembler, now = StreamAssembler(), 0
    for sent in planned.chunks:
        if sent.due_us > now:
            yield Wait((sent.due_us - now) / 1_000_000)
            now = sent.due_us
        yield from assembler.feed(sent.wire)
    match planned.ending:
        case Complete() | NoDone() | Cut() | ErrorEvent():
            fault = assembler.end()
            if fault is not None:
                yield Fail(fault)
        case Stall() | SilentBeforeFirst():
            yield Wait(30.0)
            yield Fail(Fault("model_timeout_idle", retryable=True))
        case HttpError() | Reset():
            yield Hang()
        case _:
            assert_never(planned.ending)


@dataclass(frozen=True)
class Bundled:
    """A request in a world that others are served in, too."""

    body: ChatRequest
    shared: World

    spec: FlowSpec = CHAT
    taken: str = ""

    @property
    def request(self) -> Request[ChatRequest, ChatOptions]:
        """The request as the flow gets it."""
        return Request(self.body, ChatOptions())

    def world(self) -> World:
        """Return the shared world."""
        return self.shared


@pytest.mark.slow
@directions
async def test_all_bundled_messages_are_answered_alike(first: str, second: str) -> None:
    """One after another in one world, so that conversations have their history."""
    shared = simulated()
    served = [await same_on_both(Bundled(body, shared), first, second) for body in messages()]
    assert len(served) >= 66
    assert all(played.ended[0] == "completed" for played in served)
    tools = [sum(label == "tools.run" for label, *_ in played.calls) for played in served]
    assert sum(count >= 2 for count in tools) >= 8
    history = [args for played in served for label, _, args in played.calls if "history" in label]
    assert len(history) == len(served)


async def test_the_conversation_goes_on_when_the_stack_changes_between_turns() -> None:
    """A chat served by both stacks in turn reads like one served by either alone."""
    replies = []
    turns = [body for body in messages() if body.chat_id == "chat-garden"][:4]
    for order in (["legacy"] * 4, ["graph"] * 4, ["legacy", "graph"] * 2):
        shared = simulated()
        served = [
            await same_on_both(Bundled(body, shared), stack, OTHER[stack])
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
@directions
async def test_a_provider_in_trouble_looks_the_same(
    ending: Ending, first: str, second: str
) -> None:
    """Whatever the provider breaks, at the start or in the middle, in a first or a later round."""
    bodies = [body for body in messages() if body.message_id in {"demo-001", "demo-018"}]
    for reasoning in (0, 8):
        profile = Profile(ending=ending, chunk=4, rate=20.0, reasoning=reasoning)
        for body in bodies:
            played = await same_on_both(Bundled(body, simulated(profile)), first, second)
            failed = not isinstance(ending, NoDone)
            assert played.frames[-2:] == ending_of(played, failed=failed)


def ending_of(played: Played, *, failed: bool) -> list[bytes]:
    """Return the two frames a stream must end with."""
    events = CHAT.failure(ChatOptions(), "any", played.run.frames[1].event)
    if failed:
        return [CHAT.encode(event) for event in events]
    return [played.frames[-2], CHAT.encode(events[-1])]
