"""Turns of a companion, and the scripted worlds they meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from contract.errors import Fault
from contract.flow import Flow, FlowSpec, Request
from contract.flows.companion import COMPANION, CompanionOptions, ImageTurn, MessageTurn
from contract.human import HumanAnswer
from contract.model import Chunk, ModelCall, ToolCallDelta, ToolResult, UserMessage
from contract.stores import MemoryEntry, Turn
from cutover.selftest.cases import Answer as Said
from cutover.selftest.cases import FailingStore, by_round
from effects.local import ScriptedHuman
from effects.memory import InMemoryMemory
from effects.model import Fail, ScriptedModel, Step, Wait
from effects.testing import World
from effects.tools import ScriptedTools
from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from rules.questions import NAME
from tests.support import pictures
from tests.support.pausing_flow import Desk, Reply

PNG = pictures.url(pictures.PNG)
FORM = (
    '{"title":"Which?","fields":[{"name":"colour","label":"Colour","type":"choice",'
    '"options":["red","blue"],"value":"red","required":true}]}'
)
STOP: Said = (Chunk(text="好"), Chunk(text="的。"), Chunk(finish="stop"))
MEMORIES: Said = (
    Chunk(text='{"memories":[{"text":"likes tea","confidence":0.9},'),
    Chunk(text='{"text":"has a cat","confidence":0.4},{"text":"no","confidence":0.1}]}'),
)
WRITES = ("pay",)


def calling(*calls: tuple[str, str], text: str = "") -> Said:
    """Answer with calls (name, arguments)."""
    said: tuple[Step, ...] = (Chunk(text=text),) if text else ()
    deltas = (ToolCallDelta(n, f"c{n}", *call) for n, call in enumerate(calls))
    return (*said, Chunk(tool_calls=tuple(deltas)), Chunk(finish="tool_calls"))


ASKING = calling((NAME, FORM), text="Wait. ")


@dataclass(frozen=True)
class Visit:
    """A request and the world it meets; `answers` are the model's, by the round of tools.

    `read` is what it reads in a picture, `found` what it finds there to be remembered; `human` are
    the user's answers, where they come at once.
    """

    body: MessageTurn | ImageTurn
    options: CompanionOptions = field(default_factory=CompanionOptions)
    answers: tuple[Said, ...] = (STOP,)
    read: Said = (Chunk(text="发票"), Chunk(text=" 12"), Chunk(finish="stop"))
    found: Said = MEMORIES
    human: tuple[HumanAnswer, ...] = ()
    turns: tuple[Turn, ...] = ()
    tools: Mapping[str, str | ToolResult] = field(default_factory=dict)
    slow: Mapping[str, float] = field(default_factory=dict)
    memories: Sequence[MemoryEntry] = ()
    store_fails: Mapping[str, Fault] = field(default_factory=dict)
    taken: str = ""

    @property
    def spec(self) -> FlowSpec:
        """The flow it is asked of."""
        return COMPANION

    @property
    def request(self) -> Request[MessageTurn | ImageTurn, CompanionOptions]:
        """What the flow is asked."""
        path = "/chat/image" if isinstance(self.body, ImageTurn) else ""
        return Request(self.body, self.options, path)

    def world(self) -> World:
        """Build the world anew."""
        rounds = by_round(self.answers)

        def script(call: ModelCall) -> Sequence[Step]:
            if call.json_object:
                return self.found
            last = call.messages[-1]
            if isinstance(last, UserMessage) and not isinstance(last.content, str):
                return self.read
            return tuple(rounds(call))

        tools = ScriptedTools(dict(self.tools), slow=self.slow, writes=WRITES)
        world = World(ScriptedModel(script), tools=tools, turns=self.turns)
        parts: dict[str, Any] = {"human": ScriptedHuman(self.human)}
        if self.store_fails:
            parts["conversations"] = FailingStore(world.conversations, self.store_fails)
        return World(
            world.model,
            tools=tools,
            turns=self.turns,
            memory=InMemoryMemory(self.memories),
            **parts,
        )


def turn(message: str = "hello", **fields: str) -> MessageTurn:
    """Build a request with a message."""
    return MessageTurn(session_id="s", message=message, **fields)


def image(
    action: Literal["analyze_only", "analyze_for_memory"] = "analyze_for_memory", url: str = PNG
) -> ImageTurn:
    """Build a request with a picture."""
    return ImageTurn(session_id="s", image=url, action=action)


MESSAGES = (
    "今天很开心！",
    "I'm not happy at all",
    "帮我算一下",
    "记住我喜欢茶",
    "{{x}} {y}",
    "晚安",
)
_CALLS = (
    ("dice", "{}"),
    ("pay", "{}"),
    ("nobody", "{"),
    (NAME, FORM),
    (NAME, "{}"),
    ("slow", '{"a":1}'),
)
_ANSWERS = (
    HumanAnswer("approve"),
    HumanAnswer("edit", {"colour": "blue"}),
    HumanAnswer("edit", {"memory_1": "likes coffee", "memory_2": ""}),
    HumanAnswer("reject"),
)
_FAULTS = (Fault("model_error"), Fault("model_timeout_idle"), Fault("model_rate_limited"))


def visit(seed: int, session: str = "s") -> Visit:
    """Draw a request and its world."""
    draw = Random(seed)
    return Visit(
        body=_body(draw, session),
        options=CompanionOptions(
            max_tool_iterations=draw.choice((0, 1, 2, 10)),
            enable_tools=draw.random() < 0.9,
            ask_human=draw.random() < 0.9,
            history_tokens=draw.choice((0, 10, 8_000)),
            recall_limit=draw.choice((0, 5)),
            extract_from=draw.choice((0, 1, 4)),
        ),
        answers=(*(_answer(draw) for _ in range(draw.randint(0, 2))), STOP),
        read=draw.choice(
            (
                (Chunk(text="发票"), Wait(0.1), Chunk(text=" 12"), Chunk(finish="stop")),
                (Chunk(text="NO_"), Chunk(text="TEXT")),
                (Chunk(text="NO"), Chunk(text=" ENTRY")),
                (Chunk(text="a"), Fail(draw.choice(_FAULTS))),
                (),
            )
        ),
        found=draw.choice((MEMORIES, (Chunk(text="none"),), (Fail(draw.choice(_FAULTS)),))),
        human=tuple(draw.choices(_ANSWERS, k=3)),
        turns=tuple(
            Turn(
                message_id=f"h{n}",
                role=("user", "assistant")[n % 2],
                content=f"t{n}",
                chat_id=session,
            )
            for n in range(draw.choice((0, 0, 3, 9)))
        ),
        tools={"dice": "4", "pay": ToolResult(error="tool_failed"), "slow": "late"},
        slow={"dice": draw.random(), "slow": draw.random()},
        memories=(MemoryEntry(memory_id="k", user_id=session, text="今天 开心 like tea"),),
        store_fails={draw.choice(("reply", "history", "message")): Fault("store_failed")}
        if draw.random() < 0.1
        else {},
        taken=f"session_lock:{session}" if draw.random() < 0.05 else "",
    )


def _body(draw: Random, session: str) -> MessageTurn | ImageTurn:
    if draw.random() < 0.35:
        action = draw.choice(("analyze_only", "analyze_for_memory"))
        return ImageTurn(session_id=session, image=PNG, action=action)  # type: ignore[arg-type]
    return MessageTurn(session_id=session, message=draw.choice(MESSAGES))


def _answer(draw: Random) -> Said:
    if draw.random() < 0.15:
        return (Chunk(text="…"), Fail(draw.choice(_FAULTS)))
    calls = draw.choices(_CALLS, k=draw.randint(1, 4))
    return calling(*calls, text=draw.choice(("", "Hm. ")))


class Place(Desk):
    """Takes turns of visits; the world is that of the first visit."""

    options = CompanionOptions()

    def __init__(
        self,
        world: World,
        *,
        legacy: Flow = LEGACY["companion"],
        graph: Flow = GRAPH["companion"],
    ) -> None:
        super().__init__(world, legacy=legacy, graph=graph, spec=COMPANION)

    async def visit(self, body: MessageTurn | ImageTurn, leaves: int = -1) -> Reply:
        """Take a turn, at the path its request belongs to."""
        path = "/chat/image" if isinstance(body, ImageTurn) else ""
        return await self.take(body, path, leaves)

    @property
    def kept(self) -> list[tuple[str, str]]:
        """What the store holds: who said what."""
        return [(turn.role, turn.content) for turn in self.turns]

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Every turn kept."""
        return self.world.conversations.turns


def place(visit: Visit) -> Place:
    """Make a router over a visit's world, with its stores as they are."""
    return Place(visit.world())
