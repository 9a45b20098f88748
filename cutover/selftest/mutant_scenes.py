"""Scenes drawn cases seldom play: each was added because some mutant behaved in all others."""

from __future__ import annotations

from dataclasses import replace

from contract.errors import Fault
from contract.flows.chat import ChatOptions, ChatRequest, ModelSettings
from contract.model import Chunk, ToolCallDelta
from cutover.selftest.case import Answer, Case
from cutover.selftest.scene import SCENE
from effects.model import Step, Wait


def _using(*tools: str, call_id: str = "") -> Answer:
    """Say something, part of which waits to be sent, and call tools."""
    calls = [
        Chunk(tool_calls=(ToolCallDelta(k, call_id or f"c{k}", name, "{}"),))
        for k, name in enumerate(tools)
    ]
    return (
        Chunk(text="好，"),
        Wait(0.1),
        Chunk(text="我看看。"),
        *calls,
        Chunk(finish="tool_calls"),
    )


def _saying(*texts: str, every: float = 0.2) -> Answer:
    steps: list[Step] = []
    for text in texts:
        steps += [Wait(every), Chunk(text=text)]
    return (*steps, Chunk(finish="stop"))


_PLAIN = ChatRequest(message_id="m-1", content="在吗？")

SLOW_TOOLS = Case(
    _PLAIN,
    answers=(
        _using("slow", "slower"),
        (Wait(0.2), Chunk(text="今"), *_saying("天晴。", "再见", every=0.6)),
    ),
    tools={"slow": "1", "slower": "2"},
    slow={"slow": 0.7, "slower": 1.1},
)
"""The throttle counts from the end of the last tool."""

STUCK_TOOLS = Case(
    _PLAIN,
    answers=(_using("stuck", "dice"),),
    tools={"stuck": "", "dice": ""},
    slow={"stuck": 31.0, "dice": 31.0},
)
"""Tools that write, and are given up: both fail, after text that was sent before them."""

SAME_IDS = Case(
    _PLAIN,
    answers=(_using("a", call_id="same"), _using("a", call_id="same"), _saying("好")),
    tools={"a": "1"},
)
"""A model that gives every call the same id, round after round."""

MANY_ROUNDS = Case(
    ChatRequest(message_id="m-1", content="?", model_config=ModelSettings(max_tool_iterations=50)),
    answers=(_using("a"),),
    tools={"a": "1"},
)
"""A model that never stops calling tools: all rounds there can be."""


def _paused(*pauses: float) -> Case:
    """Say a word, and one more after each pause, where one SEND in fifty seconds is due."""
    steps: list[Step] = [Chunk(text="a")]
    for pause in pauses:
        steps += [Wait(pause), Chunk(text="b")]
    return Case(_PLAIN, ChatOptions(yield_interval=50.0), answers=((*steps, Chunk(finish="stop")),))


JUST_BEFORE = _paused(49.99998, 50.1)
JUST_AFTER = _paused(50.00001, 1.0)
"""The interval has not quite passed, or only just."""

NO_REPLY_STORED = replace(SCENE, store_fails={"reply": Fault("store_failed")})
LOCKED = replace(SCENE, locked=True)
NO_REGISTRY = replace(SCENE, lookup_fails=Fault("adapter_failed"))
NOT_STORED = Case(ChatRequest(message_id="m-1"))
TOO_LONG = Case(
    ChatRequest(message_id="m-1", content="长", model_config=ModelSettings(max_tokens=16_385)),
    answers=(_saying("好"),),
)

SCENES: tuple[Case, ...] = (
    SLOW_TOOLS,
    STUCK_TOOLS,
    SAME_IDS,
    MANY_ROUNDS,
    JUST_BEFORE,
    JUST_AFTER,
    NO_REPLY_STORED,
    LOCKED,
    NO_REGISTRY,
    NOT_STORED,
    TOO_LONG,
)
