"""Scenes: requests of every flow and wire, each with the scripted world it meets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from contract.errors import Fault
from contract.flow import Event, Flow, FlowSpec, PassedEvent, Request
from contract.flows.chat import ChatOptions, ChatRequest
from contract.flows.companion import COMPANION, CompanionOptions, ImageTurn, MessageTurn
from contract.flows.declared import DeclaredFlow, NoOptions, declared_spec
from contract.flows.ops import OPS, OpsOptions, OpsRequest
from contract.flows.pipeline import PIPELINE, PipelineOptions, PipelineRequest
from contract.flows.session import SESSION, SessionOptions, SessionRequest, lock_key
from contract.human import HumanAnswer
from contract.model import (
    Chunk,
    ModelCall,
    ModelInfo,
    SystemMessage,
    ToolCallDelta,
    ToolResult,
    UserMessage,
)
from contract.ports import Effects
from contract.stores import MemoryEntry, Turn
from contract.wire import built_in
from contract.workers import WorkerResult
from cutover.selftest.cases import Answer, Case, Scene, by_round
from cutover.selftest.stream_faults import SCENE
from effects.local import ScriptedHuman
from effects.memory import InMemoryMemory
from effects.model import Fail, ScriptedModel, Step, Wait, in_turn
from effects.testing import World
from effects.tools import ScriptedTools
from effects.workers import ScriptedWorkers, WorkerStep
from rules.pipeline import CHECK_TEMPERATURE

PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9aw"
    "AAAABJRU5ErkJggg=="
)
MODELS = (ModelInfo(model_id="gpt-4.1", model="m-1"),)


@dataclass(frozen=True, kw_only=True)
class Turned:
    """A turn of a conversation; `facts` answers where the model is asked for JSON.

    `check` answers where it is asked, at a temperature of its own, whether memories are needed.
    """

    spec: FlowSpec
    request: Request[Any, Any]
    answers: tuple[Answer, ...]
    facts: Answer = (Chunk(text='{"facts":[]}'), Chunk(finish="stop"))
    check: Answer = (Chunk(text="需要检索"), Chunk(finish="stop"))
    turns: tuple[Turn, ...] = ()
    tools: Mapping[str, str | ToolResult] = field(default_factory=dict)
    memories: tuple[MemoryEntry, ...] = ()
    human: tuple[HumanAnswer, ...] = ()
    workers: Mapping[str, tuple[WorkerStep, ...]] = field(default_factory=dict)
    taken: str = ""

    def world(self) -> World:
        """Return a new world."""
        rounds, steps = by_round(self.answers), in_turn(*self.answers)

        def script(call: ModelCall) -> Iterable[Step]:
            if self.workers:
                return steps(call)
            if call.temperature == CHECK_TEMPERATURE:
                return self.check
            return self.facts if getattr(call, "json_object", False) else tuple(rounds(call))

        return World(
            ScriptedModel(script, MODELS),
            tools=ScriptedTools(dict(self.tools)),
            turns=self.turns,
            memory=InMemoryMemory(self.memories),
            human=ScriptedHuman(self.human),
            workers=ScriptedWorkers(self.workers),
        )


def _said(*pieces: str) -> Answer:
    """Answer with pieces, one after another."""
    steps = (step for piece in pieces for step in (Wait(0.6), Chunk(text=piece)))
    return (*steps, Chunk(finish="stop", model="m-1"))


def _calling(*calls: tuple[str, str], text: str) -> Answer:
    """Answer with text and call tools."""
    deltas = tuple(ToolCallDelta(n, f"c{n}", name, args) for n, (name, args) in enumerate(calls))
    return (Chunk(text=text), Chunk(tool_calls=deltas), Chunk(finish="tool_calls"))


def _past(chat: str) -> tuple[Turn, ...]:
    said = ("你好", "你好，小明！", "我 2026-03-01 搬到了北京", "记住了：北京，3 月 1 日。")
    return tuple(
        Turn(message_id=f"h-{k}", role=("user", "assistant")[k % 2], content=text, chat_id=chat)
        for k, text in enumerate(said)
    )


MEMORIES = tuple(
    MemoryEntry(memory_id=f"f-{k}", user_id="u-1", text=text)
    for k, text in enumerate(("北京 天气 常问", "12 岁的猫 叫 北京", "喜欢 喝茶 天气 好"))
)
TOOLS = {"weather": "晴，21 度", "calendar": "下午没有安排"}
CALLS = (("weather", '{"city":"北京","days":2}'), ("calendar", '{"day":"2026-11-21"}'))
PIECES = ("今天北京晴，", "气温 21 度，", "微风。\n", "你下午没有安排，", "适合出门散步。")
FORM = (
    '{"title":"哪一天？","fields":[{"name":"day","label":"日期","type":"choice",'
    '"options":["2026-11-21","2026-11-22"],"value":"2026-11-21","required":true},'
    '{"name":"note","label":"备注 1","type":"text"}]}'
)
QUESTION = "北京 天气 怎么样？ 我 2026-11-21 下午有空吗？"


def _session(session: str | None, **changes: Any) -> Turned:
    parts: dict[str, Any] = {
        "spec": SESSION,
        "request": Request(
            SessionRequest(message=QUESTION, session_id=session, user_id="u-1"),
            SessionOptions(
                unknown_session="create",
                system_prompt="你是助手。\n今天是 2026-11-21。\n答得短。",
                max_tokens=256,
                extract_from=2,
            ),
            session="" if session else "s-new",
        ),
        "answers": (_calling(*CALLS, text="我查一下。"), _said(*PIECES)),
        "facts": (Chunk(text='{"facts":["住在北京","有 1 只猫"]}'), Chunk(finish="stop")),
        "turns": _past(session) if session else (),
        "tools": TOOLS,
        "memories": MEMORIES,
    }
    return Turned(**parts | changes)


def _pipeline(session: str, **changes: Any) -> Turned:
    parts: dict[str, Any] = {
        "spec": PIPELINE,
        "request": Request(
            PipelineRequest(message=QUESTION, session_id=session, user_id="u-1", user_name="小明"),
            PipelineOptions(
                system_prompt="你是助手。\n今天是 2026-11-21。\n答得短。",
                max_tokens=256,
                token_limit=80,
            ),
        ),
        "answers": (_said(*PIECES),),
        "turns": _past(session),
        "memories": MEMORIES,
    }
    return Turned(**parts | changes)


def _ops(message: str, **changes: Any) -> Turned:
    parts: dict[str, Any] = {
        "spec": OPS,
        "request": Request(OpsRequest(input=message, session_id="s-1"), OpsOptions(max_tokens=256)),
        "answers": (_said(f"[{DISK},{RESTART}]"), FINAL),
        "turns": _past("s-1"),
        "workers": {
            "system.disk": (
                *("检查 /", Wait(0.6), "检查 /data", Wait(0.6)),
                WorkerResult(ok=True, message="2 个磁盘，已用 40%", data=[{"name": "/"}]),
            ),
            "system.memory": (
                *("读取", Wait(0.3)),
                WorkerResult(ok=False, message="内存 读不到", code="worker_timeout"),
            ),
            "container.restart": (
                *("停止 web", Wait(0.6)),
                WorkerResult(ok=True, message="web 已重启，用了 2 秒"),
            ),
            "deploy.plan": (
                WorkerResult(ok=True, message="将发布 r-7，3 个文件", data={"release": "r-7"}),
            ),
            "deploy.build": ("复制", Wait(0.6), WorkerResult(ok=True, message="r-7 已构建")),
            "deploy.release": (WorkerResult(ok=True, message="r-7 已发布"),),
            "deploy.verify": (
                Wait(0.6),
                WorkerResult(ok=False, message="没有回应", code="unverified"),
            ),
            "deploy.rollback": (WorkerResult(ok=True, message="退回 r-6"),),
        },
        "human": (HumanAnswer("approve", by="ann"),),
    }
    return Turned(**parts | changes)


DISK = '{"worker":"system","action":"disk"}'
RESTART = '{"worker":"container","action":"restart","args":{"name":"web"}}'
MEMORY = '{"worker":"system","action":"memory"}'
DEPLOY = '{"worker":"deploy","action":"run"}'
FINAL = _said('{"final":"磁盘已用 40%，', '2026-11-21 重启了 web。"}')


def _companion(message: str, **changes: Any) -> Turned:
    parts: dict[str, Any] = {
        "spec": COMPANION,
        "request": Request(
            MessageTurn(session_id="s-1", message=message, user_id="u-1"),
            CompanionOptions(max_tokens=256),
        ),
        "answers": (_calling(*CALLS, text="我查一下。"), _said(*PIECES)),
        "turns": _past("s-1"),
        "tools": TOOLS,
        "memories": MEMORIES,
    }
    return Turned(**parts | changes)


ASKING = (_calling(("weather", "{}"), ("ask_human", FORM), text="等等。"), _said(*PIECES))
FOUND = '{"memories":[{"text":"喜欢茶","confidence":0.9},{"text":"有 1 只猫","confidence":0.4}]}'
FAILING = (Chunk(text="好，"), Wait(0.6), Fail(Fault("model_unavailable", retryable=True)))


def _picture(**changes: Any) -> Turned:
    body = ImageTurn(session_id="s-1", image=PNG, action="analyze_for_memory", user_id="u-1")
    parts: dict[str, Any] = {
        "request": Request(body, CompanionOptions(max_tokens=256), "/chat/image"),
        "answers": (_said("发票 12 号，", "2026-11-21，", "共 3 元。"),),
        "facts": (Chunk(text=FOUND), Chunk(finish="stop")),
        "human": (HumanAnswer("approve"),),
    }
    return _companion("", **parts | changes)


def _chat(number: int, **changes: Any) -> Case:
    body = ChatRequest(
        message_id=f"m-{number}",
        content=QUESTION,
        user_name="Maya",
        chat_id="c-1",
        user_id="u-1",
        prompt_params={"current_date": "2026-11-21"},
    )
    parts: dict[str, Any] = {
        "body": body,
        "options": ChatOptions(wire=("strict", "extended")[number % 2]),
        "answers": (_calling(*CALLS, text="我查一下。"), _said(*PIECES)),
        "turns": _past("c-1"),
        "tools": TOOLS,
        "models": MODELS,
    }
    return Case(**parts | changes)


# Wires of declared flows: one hand-written pipeline, its answer framed as each wire has it.

Framed = tuple[str, Mapping[str, Any] | str]
"""An event's name as `event:` says it ("" for none), and its data."""


def _openai(text: str) -> Framed:
    delta = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return "", {"id": "x", "object": "chat.completion.chunk", "choices": [delta]}


_ANTHROPIC_START: tuple[Framed, ...] = (
    ("message_start", {"type": "message_start", "message": {"id": "x", "role": "assistant"}}),
    (
        "content_block_start",
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ),
)
_ANTHROPIC_END: tuple[Framed, ...] = (
    ("content_block_stop", {"type": "content_block_stop", "index": 0}),
    (
        "message_delta",
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 12},
        },
    ),
    ("message_stop", {"type": "message_stop"}),
)
_OPENAI_END: tuple[Framed, ...] = (
    ("", {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    ("", {"id": "x", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 12}}),
    ("", "[DONE]"),
)


def _anthropic(text: str) -> Framed:
    delta = {"type": "text_delta", "text": text}
    return "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}


_LINES_END: tuple[Framed, ...] = (
    ("", {"message": {"content": ""}, "done": True, "done_reason": "stop", "eval_count": 12}),
)


def frame_of(spec: FlowSpec, framed: Framed) -> bytes:
    """Write one event as a frame of a declared wire."""
    event, data = framed
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    if spec.dialect.framing == "ndjson":
        return f"{text}\n".encode()
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode()


def name_of(spec: FlowSpec, framed: Framed) -> str:
    """Return the name under which a frame of a declared wire ends its stream, or does not."""
    data = framed[1]
    if isinstance(data, str):
        return data
    if spec.dialect.framing == "ndjson":
        return "done" if data.get("done") else "message"
    return str(data.get("type", ""))


def framed_of(spec: FlowSpec, frame: bytes) -> Framed:
    """Read a frame that `frame_of` wrote."""
    if spec.dialect.framing == "ndjson":
        return "", json.loads(frame)
    event, data = "", ""
    for line in frame.decode().splitlines():
        event = line.removeprefix("event: ") if line.startswith("event: ") else event
        data = line.removeprefix("data: ") if line.startswith("data: ") else data
    return event, json.loads(data) if data.startswith("{") else data


def _lines(text: str) -> Framed:
    return "", {"message": {"role": "assistant", "content": text}, "done": False}


_WIRES: Mapping[str, tuple[str, Any, tuple[Framed, ...], tuple[Framed, ...]]] = {
    "openai wire": ("openai", _openai, (), _OPENAI_END),
    "anthropic wire": ("anthropic-messages", _anthropic, _ANTHROPIC_START, _ANTHROPIC_END),
    "ndjson wire": ("ndjson", _lines, (), _LINES_END),
}


def _wire_spec(name: str) -> FlowSpec:
    dialect = built_in()[_WIRES[name][0]]
    return declared_spec(name.replace(" ", "-"), DeclaredFlow(path=f"/{name}", dialect=dialect))


WIRE_SPECS: Mapping[str, FlowSpec] = {name: _wire_spec(name) for name in _WIRES}


def wire_flow(name: str) -> Flow:
    """Return the pipeline of a wire: read memory, ask the model, send, store."""
    spec, (_, text, start, end) = WIRE_SPECS[name], _WIRES[name]

    async def flow(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        def event(framed: Framed) -> PassedEvent:
            return PassedEvent(name_of(spec, framed), frame_of(spec, framed))

        turn = Turn(message_id="m-1", role="user", content=request.body["message"], chat_id="c-1")
        await effects.conversations.put("message", turn)
        earlier = await effects.conversations.history("history", "c-1", before="m-1", limit=9)
        said = "\n".join(one.content for one in earlier)
        system = SystemMessage(f"你是助手。\n今天是 2026-11-21。\n{said}")
        asked = (system, UserMessage(turn.content))
        call = ModelCall(model_id="gpt-4.1", messages=asked, temperature=0.5, max_tokens=64)
        for framed in start:
            yield event(framed)
        whole = ""
        async for chunk in effects.model.stream("reply", call):
            if chunk.text:
                whole += chunk.text
                yield event(text(chunk.text))
        reply = Turn(message_id="r-1", role="assistant", content=whole, reply_to="m-1")
        await effects.conversations.put("reply", reply)
        for framed in end:
            yield event(framed)

    return flow


def _wire(name: str, **changes: Any) -> Turned:
    parts: dict[str, Any] = {
        "spec": WIRE_SPECS[name],
        "request": Request({"message": QUESTION}, NoOptions()),
        "answers": (_said(*PIECES),),
        "turns": _past("c-1"),
    }
    return Turned(**parts | changes)


def _wire_scenes(name: str) -> tuple[Scene, ...]:
    other = _said("第 2 个回答：", "a b c，", "完。")
    return _wire(name), _wire(name, answers=(other,)), _wire(name, turns=())


SCENES: Mapping[str, tuple[Scene, ...]] = {
    "chat": (
        _chat(1),
        SCENE,
        _chat(2, answers=(_said(*PIECES[:3]),), tools={}),
        _chat(3, answers=(FAILING,)),
        _chat(5, locked=True),
    ),
    "session": (
        _session("s-1"),
        _session("s-2", answers=(_said(*PIECES[:3]),)),
        _session(None),
        _session("s-3", answers=(FAILING,)),
        _session("s-4", taken=lock_key("s-4")),
    ),
    "pipeline": (
        _pipeline("s-1"),
        _pipeline("s-2", answers=(_said(*PIECES[:3]),), turns=()),
        _pipeline("s-3", answers=(FAILING,)),
        _pipeline("s-4", taken=lock_key("s-4")),
    ),
    "ops": (
        _ops("磁盘满了吗？ web 2026-11-21 重启过吗？"),
        _ops("看看磁盘 2 次", answers=(_said(f"[{DISK},{MEMORY}]"), FINAL)),
        _ops("看看磁盘 3 次", answers=(_said(f"[{DISK},{DISK}]"), FAILING)),
        _ops("重启 web", human=()),
        _ops("重启 web", human=(HumanAnswer("reject", by="ann"),)),
        _ops("看看磁盘", taken=lock_key("s-1")),
        _ops("发布新版本吧，然后报告", answers=(_said(f"[{DEPLOY}]"), FINAL)),
    ),
    "companion": (
        _companion("今天很开心！北京 天气 怎么样？"),
        _companion("I'm not happy at all, 2 times", answers=(_said(*PIECES[:3]),)),
        _companion("记住我喜欢茶", answers=(FAILING,)),
        _companion("晚安", taken=lock_key("s-1")),
    ),
    "question": (
        _companion("北京 天气 怎么样？", answers=ASKING, human=(HumanAnswer("approve"),)),
        _companion("帮我算一下", answers=ASKING),
    ),
    "picture": (_picture(), _picture(human=()), _picture(human=(HumanAnswer("reject"),))),
    **{name: _wire_scenes(name) for name in _WIRES},
}
"""Scenes by the path a request takes: flows, branches of a flow, wires of declared flows."""
