"""Conversations of the session flow: turns in one house, with whatever can happen to each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from contract.errors import EffectFailed, Fault
from contract.flow import FlowSpec, Request
from contract.flows.session import SESSION, SessionOptions, SessionRequest, lock_key
from contract.model import Chunk, ModelCall, ModelInfo, ToolResult
from cutover.selftest.cases import WRITES, Answer, FailingConversations, FailingLookup, by_round
from effects.ids import CountingIds
from effects.memory import InMemoryMemory
from effects.model import Script, ScriptedModel, Step
from effects.stores import MemoryConversations
from effects.testing import World
from effects.tools import ScriptedTools

if TYPE_CHECKING:
    from contract.stores import MemoryEntry, Recall


@dataclass(frozen=True, slots=True)
class House:
    """What outlives a turn: what was said, what was learnt, which ids were drawn."""

    conversations: MemoryConversations = field(default_factory=MemoryConversations)
    memory: InMemoryMemory = field(default_factory=InMemoryMemory)
    ids: CountingIds = field(default_factory=CountingIds)


class FailingMemory:
    """A memory that fails at the sites named in `faults`."""

    def __init__(self, memory: InMemoryMemory, faults: Mapping[str, Fault]) -> None:
        self._memory = memory
        self._faults = faults

    async def recall(self, site: str, query: Recall) -> tuple[MemoryEntry, ...]:
        """Find what is remembered."""
        self._fail(site)
        return await self._memory.recall(site, query)

    async def write(self, site: str, entries: tuple[MemoryEntry, ...]) -> int:
        """Remember."""
        self._fail(site)
        return await self._memory.write(site, entries)

    def _fail(self, site: str) -> None:
        if site in self._faults:
            raise EffectFailed(self._faults[site])


@dataclass(frozen=True, kw_only=True)
class Saying:
    """One turn and the world it meets; `answers` are the model's, by the round of tools.

    `learnt` is what the model answers where facts are asked for; `fails` are faults of
    conversations and memory by site.
    """

    body: SessionRequest
    begins: str = ""
    house: House = field(default_factory=House)
    options: SessionOptions = field(default_factory=SessionOptions)
    answers: tuple[Answer, ...] = ()
    learnt: Answer = ()
    tools: Mapping[str, str | ToolResult] = field(default_factory=dict)
    slow: Mapping[str, float] = field(default_factory=dict)
    models: tuple[ModelInfo, ...] | None = None
    tools_fail: Fault | None = None
    lookup_fails: Fault | None = None
    fails: Mapping[str, Fault] = field(default_factory=dict)
    busy: bool = False

    @property
    def spec(self) -> FlowSpec:
        """The flow it is asked of."""
        return SESSION

    @property
    def session(self) -> str:
        """The session it belongs to, one that begins included."""
        return self.body.session_id or self.begins

    @property
    def request(self) -> Request[SessionRequest, SessionOptions]:
        """What the flow is asked."""
        return Request(self.body, self.options, session=self.begins)

    @property
    def taken(self) -> str:
        """The lock somebody else holds, if any."""
        return lock_key(self.session) if self.busy else ""

    def world(self) -> World:
        """Build the world around the house."""
        tools = ScriptedTools(
            dict(self.tools), slow=self.slow, writes=WRITES, list_fails=self.tools_fail
        )
        model = ScriptedModel(self._script(), self.models)
        return World(
            FailingLookup(self.lookup_fails) if self.lookup_fails else model,
            tools=tools,
            conversations=FailingConversations(self.house.conversations, self.fails),
            memory=FailingMemory(self.house.memory, self.fails),
            ids=self.house.ids,
        )

    def _script(self) -> Script:
        reply = by_round(self.answers)

        def script(call: ModelCall) -> Iterable[Step]:
            if call.json_object:
                return self.learnt or (Chunk(finish="stop"),)
            return reply(call)

        return script
