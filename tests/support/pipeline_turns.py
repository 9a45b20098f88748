"""Turns of the pipeline flow, and all that can happen to one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from contract.errors import Fault
from contract.flow import FlowSpec, Request
from contract.flows.pipeline import PIPELINE, Interlocutor, PipelineOptions, PipelineRequest
from contract.flows.session import lock_key
from contract.model import Chunk, ModelCall, ModelInfo
from contract.stores import MemoryEntry, Turn
from cutover.selftest.cases import Answer, FailingModel, FailingStore
from effects.memory import InMemoryMemory
from effects.model import Step
from effects.stores import MemoryConversations
from effects.testing import World
from tests.support.flow_runs import Played
from tests.support.session_turns import House

SESSION_ID = "s-1"
NEEDED: Answer = (Chunk(text="需要"), Chunk(text="检索"), Chunk(finish="stop"))
NOT_NEEDED: Answer = (Chunk(text="不需要检索"), Chunk(finish="stop"))
HEARD: Answer = (Chunk(text="I "), Chunk(text="hear."), Chunk(finish="stop"))
MOTHER = Interlocutor("Ana", "mother")
KNOWN = (
    MemoryEntry(memory_id="k-1", user_id="u-1", text="the park in May", relation="mother"),
    MemoryEntry(memory_id="k-2", user_id="u-1", text="the park in June", relation="friend"),
    MemoryEntry(memory_id="k-3", user_id="u-2", text="the park of another", relation="mother"),
    MemoryEntry(memory_id="k-4", user_id="u-1", text="the park alone"),
)


def house(*texts: str) -> House:
    """Return stores with what is known, and a conversation so far, by user and model in turn."""
    turns = tuple(
        Turn(
            message_id=f"h-{number}",
            role="assistant" if number % 2 else "user",
            content=text,
            chat_id=SESSION_ID,
        )
        for number, text in enumerate(texts)
    )
    return House(MemoryConversations(turns), InMemoryMemory(KNOWN))


def body(message: str = "Do you remember the park?", **fields: Any) -> PipelineRequest:
    """Return a request."""
    named: dict[str, Any] = {"user_id": "u-1", "session_id": SESSION_ID, **fields}
    return PipelineRequest(message=message, **named)


def is_check(call: ModelCall) -> bool:
    """Whether the model is asked if memories are needed."""
    return call.temperature == 0.1 and call.max_tokens == 10


@dataclass(frozen=True, kw_only=True)
class Talk:
    """One turn and its world: what the model answers to the check, and to the user.

    `fails` are faults by site of conversations and memory, and of the model's `lookup` and `count`;
    `tokens` counts those of a text, without it they are estimated.
    """

    body: PipelineRequest = field(default_factory=body)
    options: PipelineOptions = field(default_factory=PipelineOptions)
    check: Answer = NEEDED
    answer: Answer = HEARD
    house: House = field(default_factory=house)
    models: tuple[ModelInfo, ...] | None = None
    tokens: Callable[[str], int] | None = None
    fails: Mapping[str, Fault] = field(default_factory=dict)
    busy: bool = False

    spec: FlowSpec = PIPELINE

    @property
    def request(self) -> Request[PipelineRequest, PipelineOptions]:
        """The request as the flow gets it."""
        return Request(self.body, self.options)

    @property
    def taken(self) -> str:
        """The lock another exchange holds, "" for none."""
        return lock_key(self.body.session_id) if self.busy else ""

    def world(self) -> World:
        """Build the world."""

        def script(call: ModelCall) -> Iterable[Step]:
            return self.check if is_check(call) else self.answer

        return World(
            FailingModel(script, self.models, self.tokens, fails=self.fails),
            conversations=FailingStore(self.house.conversations, self.fails),
            memory=FailingStore(self.house.memory, self.fails),
            ids=self.house.ids,
        )


def ending(played: Played) -> dict[str, Any]:
    """Return the data of the terminal frame."""
    head, data = played.frames[-1].split(b"\n", 1)
    assert head == b"event: message"
    return msgspec.json.decode(data.removeprefix(b"data: "), type=dict[str, Any])


def tokens(played: Played) -> list[str]:
    """Return the texts of the token frames."""
    found = []
    for frame in played.frames[:-1]:
        head, data = frame.split(b"\n", 1)
        assert head == b"event: token"
        found.append(str(msgspec.json.decode(data.removeprefix(b"data: "))["content"]))
    return found
