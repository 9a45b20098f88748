"""The scene faults are played in: a chat with a past, two tools, reasoning, and a long answer."""

from __future__ import annotations

from contract.flows.chat import ChatOptions, ChatRequest, ModelSettings
from contract.model import Chunk, ModelInfo, ToolCallDelta
from contract.stores import Turn
from cutover.selftest.case import Case
from effects.model import Wait

PIECES = ("今天北京晴，", "气温二十一度，", "微风。", "你下午没有安排，", "适合出门散步。")

SCENE = Case(
    ChatRequest(
        message_id="m-1",
        content="北京天气怎么样？我下午有空吗？",
        user_name="小明",
        chat_id="c-1",
        user_id="u-1",
        model_config=ModelSettings(temperature=0.7, max_tokens=512),
    ),
    ChatOptions(wire="extended"),
    answers=(
        (
            Chunk(reasoning="要查天气，"),
            Wait(0.6),
            Chunk(reasoning="也要查日程。"),
            Chunk(text="我查一下。"),
            Chunk(tool_calls=(ToolCallDelta(0, "c1", "weather", '{"city":"北京"}'),)),
            Chunk(tool_calls=(ToolCallDelta(1, "c2", "calendar", '{"day":"今天"}'),)),
            Chunk(finish="tool_calls"),
        ),
        (
            Chunk(reasoning="可以回答了。"),
            *(step for piece in PIECES for step in (Wait(0.6), Chunk(text=piece))),
            Chunk(finish="stop"),
        ),
    ),
    turns=(
        Turn(message_id="h-1", role="user", content="你好", chat_id="c-1", user_name="小明"),
        Turn(message_id="h-2", role="assistant", content="你好，小明！", chat_id="c-1"),
    ),
    tools={"weather": "晴，21 度", "calendar": "下午没有安排"},
    models=(ModelInfo(model_id="gpt-4.1", model="m-1"),),
)
