"""Turns of the session flow, all that can happen to one, and their threads seen from behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from contract.errors import Fault
from contract.flow import FlowSpec, Request
from contract.flows.session import SESSION, SessionOptions, SessionRequest, lock_key
from contract.model import Chunk, ModelCall, ModelInfo, ToolCallDelta, ToolResult
from contract.stores import Turn
from cutover.selftest.cases import WRITES, Answer, FailingModel, FailingStore, by_round
from effects.local import CountingIds
from effects.memory import InMemoryMemory
from effects.model import Step
from effects.stores import MemoryConversations
from effects.testing import World
from effects.tools import ScriptedTools
from graph_impl import FLOWS
from graph_impl.session import session
from graph_impl.threads import Threads
from router.serving.stack import LocalStack
from tests.support.flow_runs import record
from tests.support.postgres import execute

SESSION_ID = "s-1"
SECRET = "quinces"

Messages = list[tuple[str, str, str]]
"""Messages as id, role and content, oldest first."""


@dataclass(frozen=True, slots=True)
class House:
    """The stores that outlive a turn, and the ids drawn so far."""

    conversations: MemoryConversations = field(default_factory=MemoryConversations)
    memory: InMemoryMemory = field(default_factory=InMemoryMemory)
    ids: CountingIds = field(default_factory=CountingIds)


@dataclass(frozen=True, kw_only=True)
class Saying:
    """One turn and its world; `answers` are the model's, one for each round of tools.

    `learnt` is the model's answer where facts are extracted; `fails` are faults of conversations
    and memory by site; `begins` names the session of a request that names none.
    """

    body: SessionRequest
    begins: str = ""
    house: House = field(default_factory=House)
    options: SessionOptions = field(default_factory=SessionOptions)
    answers: tuple[Answer, ...] = ()
    learnt: Answer = (Chunk(finish="stop"),)
    tools: Mapping[str, str | ToolResult] = field(default_factory=dict)
    slow: Mapping[str, float] = field(default_factory=dict)
    models: tuple[ModelInfo, ...] | None = None
    tools_fail: Fault | None = None
    lookup_fails: Fault | None = None
    fails: Mapping[str, Fault] = field(default_factory=dict)
    busy: bool = False

    spec: FlowSpec = SESSION

    @property
    def session(self) -> str:
        """The session of the turn."""
        return self.body.session_id or self.begins

    @property
    def request(self) -> Request[SessionRequest, SessionOptions]:
        """The request as the flow gets it."""
        return Request(self.body, self.options, session=self.begins)

    @property
    def taken(self) -> str:
        """The lock another exchange holds, "" for none."""
        return lock_key(self.session) if self.busy else ""

    def world(self) -> World:
        """Build the world around the house."""
        reply = by_round(self.answers)

        def script(call: ModelCall) -> Iterable[Step]:
            return self.learnt if call.json_object else reply(call)

        return World(
            FailingModel(script, self.models, fails={"lookup": self.lookup_fails}),
            tools=ScriptedTools(
                dict(self.tools), slow=self.slow, writes=WRITES, list_fails=self.tools_fail
            ),
            conversations=FailingStore(self.house.conversations, self.fails),
            memory=FailingStore(self.house.memory, self.fails),
            ids=self.house.ids,
        )


async def said(threads: Threads, session_id: str) -> Messages | None:
    """Read a thread; None where there is none. It holds messages, and nothing else."""
    found = await threads.read(session_id)
    if found is None:
        return None
    values: dict[str, Any] = dict(found.checkpoint["channel_values"])
    messages: list[dict[str, str]] = values.pop("messages")
    assert values == {}
    assert {frozenset(one) for one in messages} <= {frozenset(("id", "role", "content"))}
    assert {one["role"] for one in messages} <= {"user", "assistant"}
    return [(one["id"], one["role"], one["content"]) for one in messages]


async def stored(turn_: Saying) -> Messages:
    """Read from the store what a turn sees of its session, that turn included."""
    kept = await turn_.house.conversations.history("", turn_.session, before="", limit=10_000)
    return shown(kept)[-turn_.options.history_limit - 2 :]


def shown(turns: tuple[Turn, ...]) -> Messages:
    """Show stored turns as a thread holds them."""
    return [(one.message_id, one.role, one.content) for one in turns]


@dataclass(frozen=True, slots=True)
class Place:
    """Where threads are stored, read without the engine."""

    address: str

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables of threads."""
        if self.address.startswith("sqlite"):
            return ("checkpoints", "writes")
        return ("checkpoints", "checkpoint_blobs", "checkpoint_writes")

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement."""
        return execute(self.address, statement, *values)

    def rows(self) -> dict[str, int]:
        """Count the rows."""
        return {one: self.execute(f"SELECT count(*) FROM {one}")[0][0] for one in self.tables}

    def everything(self) -> bytes:
        """Return all that stands in the tables."""
        found = [str(row) for one in self.tables for row in self.execute(f"SELECT * FROM {one}")]
        return "\n".join(found).encode()


def turn(house: House, number: int, *, learns: bool = False) -> Saying:
    """Say something that makes the model use a tool, with memories at hand."""
    call = Chunk(tool_calls=(ToolCallDelta(0, "c", "dice", '{"of": "pears"}'),))
    return Saying(
        body=SessionRequest(
            message=f"I like {SECRET} {number}", session_id=SESSION_ID, user_id="u"
        ),
        house=house,
        options=SessionOptions(
            unknown_session="create", system_prompt="BE BRIEF", extract_from=2 * learns
        ),
        answers=(
            (Chunk(text="let me see"), call, Chunk(finish="tool_calls")),
            (Chunk(text=f"heard {number}"),),
        ),
        tools={"dice": "SIX"},
    )


def learning(house: House) -> Saying:
    """Take a turn from which one fact is learnt."""
    learnt = (Chunk(text='{"facts": ["likes quinces"]}'), Chunk(finish="stop"))
    return replace(turn(house, 0, learns=True), learnt=learnt)


def graph(threads: Threads) -> LocalStack:
    """Return the graph stack with its threads there."""
    return LocalStack("graph", {**FLOWS, "session": session(threads=threads)}, "g1")


async def hold(threads: Threads, house: House, turns: int) -> None:
    """Hold so many turns."""
    stack = graph(threads)
    for number in range(turns):
        served, _ = await record(stack, turn(house, number))
        assert served.ended[0] == "completed"
