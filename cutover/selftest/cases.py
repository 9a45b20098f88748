"""Cases of the chat flow: a request and its scripted world, also drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from contract.errors import EffectFailed, Fault, FaultCode
from contract.flow import FlowSpec, Request
from contract.flows.chat import CHAT, ChatOptions, ChatRequest, ModelOverrides, PromptValue
from contract.model import (
    AssistantMessage,
    Chunk,
    ModelCall,
    ModelInfo,
    ToolCallDelta,
    ToolResult,
    Usage,
)
from contract.stores import Turn
from effects.model import Fail, Script, ScriptedModel, Step, Wait
from effects.testing import World
from effects.tools import ScriptedTools
from rules.chat import lock_key

Answer = tuple[Step, ...]

FOREVER = 86_400.0
WRITES = ("dice", "stuck")
"""Tools that are not read-only; one that exceeds the deadline of a write is cancelled."""


class Scene(Protocol):
    """A request, and the world it meets; `taken` is a lock another exchange holds, or ""."""

    @property
    def spec(self) -> FlowSpec:
        """The flow of the request."""
        ...

    @property
    def request(self) -> Request[Any, Any]:
        """The request as the flow gets it."""
        ...

    @property
    def taken(self) -> str:
        """The lock another exchange holds, "" for none."""
        ...

    def world(self) -> World:
        """Return a new world."""
        ...


@dataclass(frozen=True)
class Case:
    """A request and its world; `answers` are the model's, one for each round of tools."""

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
        """The request as the flow gets it."""
        return Request(self.body, self.options)

    @property
    def spec(self) -> FlowSpec:
        """The flow of the request."""
        return CHAT

    @property
    def taken(self) -> str:
        """The lock another exchange holds, "" for none."""
        return lock_key(self.body.message_id) if self.locked else ""

    def world(self) -> World:
        """Return a new world."""
        tools = ScriptedTools(
            dict(self.tools), slow=self.slow, writes=WRITES, list_fails=self.tools_fail
        )
        fails = {"lookup": self.lookup_fails}
        model = FailingModel(by_round(self.answers), self.models, fails=fails)
        world = World(model, tools=tools, turns=self.turns)
        if self.store_fails:
            world = World(
                world.model,
                tools=tools,
                conversations=FailingStore(world.conversations, self.store_fails),
            )
        return world


class FailingModel(ScriptedModel):
    """A model whose `lookup` and `count` fail, where `fails` has a fault of that name."""

    def __init__(
        self,
        script: Script | Sequence[Step],
        models: Iterable[ModelInfo] | None = None,
        tokens: Callable[[str], int] | None = None,
        *,
        fails: Mapping[str, Fault | None],
    ) -> None:
        super().__init__(script, models, tokens)
        self._fails = fails

    async def lookup(self, site: str, model_id: str) -> ModelInfo:
        """Look up, or fail."""
        self._check("lookup")
        return await super().lookup(site, model_id)

    async def count(
        self, site: str, model_id: str, texts: tuple[str, ...]
    ) -> tuple[int, ...] | None:
        """Count, or fail."""
        self._check("count")
        return await super().count(site, model_id, texts)

    def _check(self, name: str) -> None:
        if fault := self._fails.get(name):
            raise EffectFailed(fault)


class FailingStore:
    """A store that fails at the sites named in `faults`."""

    def __init__(self, store: object, faults: Mapping[str, Fault]) -> None:
        self._store = store
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._store, name)

        async def called(site: str, *args: Any, **named: Any) -> Any:
            if site in self._faults:
                raise EffectFailed(self._faults[site])
            return await operation(site, *args, **named)

        return called


def by_round(answers: tuple[Answer, ...]) -> Script:
    """Return a script with an answer for each round of tools; the last one repeats."""

    def script(call: ModelCall) -> Answer:
        rounds = sum(
            isinstance(message, AssistantMessage) and bool(message.tool_calls)
            for message in call.messages
        )
        return answers[min(rounds, len(answers) - 1)] if answers else (Chunk(finish="stop"),)

    return script


TEXTS = (
    "Hello",
    " there.",
    "赤尾",
    "在这里，",
    "🍅",
    "👩‍👩‍👧",
    "{x}",
    "{{7*7}}",
    '{"a":1}',
    "\n",
    " ",
    "<&>",
    "\\",
    '"',
    "data: x\n\n",
    "e\u0301",
    "\u2028",
    "",
)
NAMES = (None, "Maya", "林晓", "a]: b", "{n}", "O'B")
PAUSES = (0.0, 0.0, 0.001, 0.1, 0.25, 0.499999, 0.5, 0.7, 3.0, 45.0)
INTERVALS = (0.5, 0.5, 0.0, 0.1, 2.0)
PARAMS: tuple[dict[str, PromptValue] | None, ...] = (
    None,
    None,
    {},
    {"self": "me", "cls": 1, "context": "x"},
    {"current_date": None, "current_time": 1.50},
    {"current_date": "{current_time}", "current_time": "{{ current_date }}{% raw %}"},
    {"current_date": 10**30, "current_time": -0.0, "other": "<b>"},
    {"current_date": 1e22, "current_time": "五点🕔\r\n"},
    {"name": "x", "template": "y", "args": 0, "kwargs": None},
)
FAULTS: tuple[FaultCode, ...] = (
    "model_rate_limited",
    "model_unavailable",
    "model_truncated",
    "model_timeout_idle",
    "model_content_policy",
    "adapter_failed",
)
TOOLS: dict[str, str | ToolResult] = {
    "calc": "42",
    "dice": "4",
    "slow": "at last",
    "boom": ToolResult(error="tool_failed"),
    "late": ToolResult(error="tool_timeout"),
    "picky": ToolResult(error="bad_arguments"),
    "quiet": "",
    "stuck": "never said",
    "unicode": "“{x}”\n🍷",
}
SLOW = {"slow": 0.8, "late": 10.0, "dice": 0.2, "stuck": 31.0}
CALLED = (*TOOLS, *TOOLS, "no_such_tool", "calc", "calc", "")
INFO = ModelInfo(model_id="gpt-4.1", model="m-1", max_output_tokens=4_096)


def case(seed: int) -> Case:
    """Draw a case."""
    draw = Random(seed)
    message_id = f"m-{seed}"
    chat_id = draw.choice((None, "c-1", "c-1", "c-1"))
    said = text(draw, 1, 4)
    question = Turn(
        message_id=message_id,
        role="user",
        content=said if said.strip() else f"{said}?",
        chat_id=chat_id,
        user_name=draw.choice(NAMES),
        user_id=draw.choice((None, "u-1")),
    )
    stored = likely(draw, 0.3)
    turns = _history(draw)
    if (stored and likely(draw, 0.9)) or (not stored and likely(draw, 0.1)):
        turns += (question,)
    if not stored and likely(draw, 0.03):
        turns += (Turn(message_id=message_id, role="user", content="another"),)
    return Case(
        body=_body(draw, question, stored=stored),
        options=_options(draw),
        answers=answers(draw),
        turns=turns,
        tools=TOOLS if likely(draw, 0.9) else {},
        slow=SLOW,
        models=(INFO,),
        tools_fail=rarely(draw, Fault("tool_list_failed", retryable=True)),
        store_fails=_store_fails(draw),
        locked=likely(draw, 0.02),
    )


def likely(draw: Random, chance: float) -> bool:
    """Draw true with a chance."""
    return draw.random() < chance


def rarely(draw: Random, fault: Fault) -> Fault | None:
    """Draw a fault, or none."""
    return fault if likely(draw, 0.03) else None


def _store_fails(draw: Random) -> dict[str, Fault]:
    site = draw.choice(("message", "history", "reply"))
    return {site: Fault("store_failed")} if likely(draw, 0.06) else {}


def _body(draw: Random, question: Turn, *, stored: bool) -> ChatRequest:
    asked = ModelOverrides(
        model_id=draw.choice((None,) * 20 + ("gpt-4.1",) * 5 + ("no-such-model",)),
        temperature=draw.choice((None, 0.0, 0.7, 1)),
        max_tokens=draw.choice((None,) * 20 + (1, 4_096, 4_097)),
        enable_tools=draw.choice((None, None, True, False)),
        max_tool_iterations=draw.choice((None, None, 0, 1, 2, 50)),
    )
    return ChatRequest(
        message_id=question.message_id,
        content=None if stored else question.content,
        user_name=question.user_name,
        chat_id=question.chat_id,
        user_id=question.user_id,
        model_config=draw.choice((None, asked, asked)),
        prompt_params=draw.choice(PARAMS),
    )


def _options(draw: Random) -> ChatOptions:
    return ChatOptions(
        wire=draw.choice(("strict", "extended")),
        yield_interval=draw.choice(INTERVALS),
        timezone=draw.choice(("UTC", "Asia/Shanghai", "America/St_Johns")),
        enable_tools=likely(draw, 0.95),
        max_tool_iterations=draw.choice((10, 10, 0, 1, 2)),
        history_limit=draw.choice((20, 20, 0, 1)),
        history_tokens=draw.choice((8_000, 8_000, 12, 0)),
        texts=draw.choice(({}, {}, {"length": "…", "content_filter": ""})),
    )


def _history(draw: Random) -> tuple[Turn, ...]:
    return tuple(
        Turn(
            message_id=f"h-{number}",
            role=draw.choice(("user", "assistant")),
            content=text(draw, 0, 3),
            chat_id=draw.choice(("c-1", "c-1", "c-2")),
            user_name=draw.choice(NAMES),
            reply_to=draw.choice((None, f"h-{number - 1}")),
        )
        for number in range(draw.choice((0, 0, 1, 4, 30)))
    )


def answers(draw: Random) -> tuple[Answer, ...]:
    """Draw a model's answers, by the round of tools."""
    rounds = draw.choice((0, 0, 1, 1, 2, 3, 4))
    called = [_answer(draw, number, calls=draw.choice((1, 1, 2, 3))) for number in range(rounds)]
    return (*called, _answer(draw, rounds, calls=0))


def _answer(draw: Random, number: int, *, calls: int) -> Answer:
    steps: list[Step] = []
    for _ in range(draw.choice((0, 0, 0, 2))):
        steps += [_pause(draw), Chunk(reasoning=text(draw, 0, 2))]
    for _ in range(draw.choice((0, 1, 5) if calls else (0, 1, 4, 9))):
        thought = draw.choice(("", "", "", "hm"))
        steps += [_pause(draw), Chunk(text=draw.choice(TEXTS), reasoning=thought)]
    steps += _called(draw, number, calls)
    usual = "tool_calls" if calls else "stop"
    finish = draw.choice((usual,) * 6 + ("length", "content_filter"))
    if calls and finish == "length":
        steps = steps[: max(1, len(steps) - 2)]
    steps += [Chunk(finish=finish, model="m-1"), _pause(draw)]
    steps.append(Chunk(usage=Usage(draw.randrange(99), 2, 101)))
    if likely(draw, 0.07):
        at = draw.randrange(len(steps) + 1)
        fault = Fault(draw.choice(FAULTS), retryable=likely(draw, 0.5), data={"status": 503})
        steps = [*steps[:at], Fail(fault)]
    return tuple(step for step in steps if step != Wait(0.0))


def _called(draw: Random, number: int, calls: int) -> list[Step]:
    steps: list[Step] = []
    for index in range(calls):
        call_id = draw.choice((f"call-{number}-{index}",) * 3 + ("same", "", f"call_{number}_1"))
        written = draw.choice(("{}", '{"expression":"6*7"}', '{"broken": ', "", "📦"))
        half = len(written) // 2
        name = draw.choice(CALLED)
        steps += [
            Chunk(tool_calls=(ToolCallDelta(index, call_id, name, written[:half]),)),
            _pause(draw),
            Chunk(tool_calls=(ToolCallDelta(index, "", "", written[half:]),)),
        ]
    if calls > 1 and likely(draw, 0.3):
        draw.shuffle(steps)
    return steps


def text(draw: Random, least: int, most: int) -> str:
    """Draw a text of so many pieces."""
    return "".join(draw.choice(TEXTS) for _ in range(draw.randint(least, most)))


def _pause(draw: Random) -> Wait:
    return Wait(draw.choice(PAUSES))
