"""A request of the chat flow and the scripted world it meets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from contract.errors import EffectFailed, Fault
from contract.flow import FlowSpec, Request
from contract.flows.chat import CHAT, ChatOptions, ChatRequest
from contract.model import AssistantMessage, Chunk, ModelCall, ModelInfo, ToolResult
from contract.stores import Turn
from cutover.selftest.world import World
from effects.model import Script, ScriptedModel, Step
from effects.stores import MemoryConversations
from effects.tools import ScriptedTools
from rules.chat import lock_key

Answer = tuple[Step, ...]

FOREVER = 86_400.0
WRITES = ("dice", "stuck")
"""Tools that are not read-only: what takes longer than a write may is given up."""


@dataclass(frozen=True)
class Case:
    """A request and the world it meets; `answers` are the model's, by the round of tools."""

    body: ChatRequest
    options: ChatOptions = field(default_factory=ChatOptions)
    answers: tuple[Answer, ...] = ()
    turns: tuple[Turn, ...] = ()
    tools: Mapping[str, str | ToolResult] = field(default_factory=dict)
    slow: Mapping[str, float] = field(default_factory=dict)
    models: tuple[ModelInfo, ...] | None = None
    tools_fail: Fault | None = None
    store_fails: Mapping[str, Fault] = field(default_factory=dict)
    lookup_fails: Fault | None = None
    locked: bool = False

    @property
    def request(self) -> Request[ChatRequest, ChatOptions]:
        """What the flow is asked."""
        return Request(self.body, self.options)

    @property
    def spec(self) -> FlowSpec:
        """The flow it is asked of."""
        return CHAT

    @property
    def taken(self) -> str:
        """The lock somebody else holds, if any."""
        return lock_key(self.body.message_id) if self.locked else ""

    def world(self) -> World:
        """Build the world anew."""
        tools = ScriptedTools(
            dict(self.tools), slow=self.slow, writes=WRITES, list_fails=self.tools_fail
        )
        model = ScriptedModel(by_round(self.answers), self.models)
        if self.lookup_fails:
            model = FailingLookup(self.lookup_fails)
        world = World(model, tools=tools, turns=self.turns)
        if self.store_fails:
            world = World(
                world.model,
                tools=tools,
                conversations=FailingConversations(world.conversations, self.store_fails),
            )
        return world


class FailingLookup(ScriptedModel):
    """A model whose registry is out of order."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(())
        self._fault = fault

    async def lookup(self, site: str, model_id: str) -> ModelInfo:  # noqa: ARG002 - the port's own
        """Fail."""
        raise EffectFailed(self._fault)


class FailingConversations:
    """A store that fails at the sites named in `faults`."""

    def __init__(self, store: MemoryConversations, faults: Mapping[str, Fault]) -> None:
        self._store = store
        self._faults = faults

    async def find(self, site: str, message_id: str) -> Turn | None:
        """Look a turn up."""
        self._fail(site)
        return await self._store.find(site, message_id)

    async def put(self, site: str, turn: Turn) -> bool:
        """Store a turn."""
        self._fail(site)
        return await self._store.put(site, turn)

    async def history(
        self, site: str, chat_id: str, *, before: str, limit: int
    ) -> tuple[Turn, ...]:
        """Read earlier turns."""
        self._fail(site)
        return await self._store.history(site, chat_id, before=before, limit=limit)

    def _fail(self, site: str) -> None:
        if site in self._faults:
            raise EffectFailed(self._faults[site])


def by_round(answers: tuple[Answer, ...]) -> Script:
    """Make a script that gives an answer for each round of tools, the last one again and again."""

    def script(call: ModelCall) -> Answer:
        rounds = sum(
            isinstance(message, AssistantMessage) and bool(message.tool_calls)
            for message in call.messages
        )
        return answers[min(rounds, len(answers) - 1)] if answers else (Chunk(finish="stop"),)

    return script
