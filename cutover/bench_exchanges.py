"""Exchanges for the bench: chats of 52 frames with tape and plays, no two of the same text."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import zstandard

from contract import operations as ops
from contract.flows.chat import (
    Accept,
    ChatEvent,
    End,
    Send,
    StartReply,
    Success,
    ToolFeedback,
    encode,
)
from contract.model import (
    AssistantMessage,
    Chunk,
    LookUp,
    Message,
    ModelCall,
    NoArguments,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from contract.records import EntryRecord, PlayRecord, RequestRecord, RunRecord, encode_run
from contract.stores import Acquire, ClockReading, NewId, PutTurn, Release, Turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from contract.operations import Operation

BEGAN = 1_795_000_000_000_000
PIECES = 44
BATCH = 50
LATE_US = 3_000
_STEP_US = 40_000
_WORDS = ("今天", "北京", "天气", "晴朗", "river ", "bridge ", "clock ", "散步", "外套", "，", "。")
_TOOLS = (
    ToolCall("call_0_0", "get_weather", '{"city":"北京"}'),
    ToolCall("call_0_1", "get_weather", '{"city":"上海"}'),
)


@dataclass(frozen=True, slots=True)
class Talk:
    """What one stack asks and sends: a system prompt, and the reply in pieces."""

    system: str
    pieces: tuple[str, ...]
    tools: tuple[ToolCall, ...] = _TOOLS

    @property
    def text(self) -> str:
        """The whole reply."""
        return "".join(self.pieces)


def talk(number: int) -> Talk:
    """Give the talk of an exchange: drawn, and the same for the same number."""
    chance = random.Random(number)  # noqa: S311 (texts, not secrets)
    pieces = tuple("".join(chance.choices(_WORDS, k=6)) for _ in range(PIECES))
    return Talk("你是一个友好的助手。今天是 2026-11-21，请根据以下对话历史回答用户问题。", pieces)


def exchange(number: int, graph: Talk | None = None) -> tuple[RunRecord, RunRecord]:
    """Give one exchange: legacy served and recorded, graph played; differing where told."""
    legacy = talk(number)
    key = f"m-{number}"
    asked = _calls(legacy, key)
    tape = tuple(_entry(seq, *call) for seq, call in enumerate(asked))
    body = msgspec.Raw(msgspec.json.encode({"message_id": key, "content": "北京天气怎么样？"}))
    live = tuple(
        PlayRecord(port=e.port, op=e.op, site=e.site, how="live", at=e.at, entry=e.seq)
        for e in tape
    )
    first = _run(number, "legacy", frames(legacy), live)
    other = graph or legacy
    second = _run(number, "graph", frames(other, LATE_US), _plays(_calls(other, key), tape))
    request = RequestRecord(body, msgspec.Raw(b"{}"))
    return msgspec.structs.replace(first, tape=tape, request=request), second


def _run(
    number: int,
    stack: str,
    sent: tuple[tuple[int, str], ...],
    plays: tuple[PlayRecord, ...],
) -> RunRecord:
    return RunRecord(
        v=1,
        exchange=f"x-{number:07}",
        flow="chat",
        role="serving" if stack == "legacy" else "shadow",
        stack=stack,
        assigned="legacy",
        served="legacy",
        reason="percent",
        bucket=number % 100_000,
        config="2c16dec00668",
        code="92ae765e75b2",
        began=BEGAN + number * 1_000_000,
        frames=sent,
        outcome="completed",
        plays=plays,
    )


def frames(said: Talk, late_us: int = 0) -> tuple[tuple[int, str], ...]:
    """Put what a talk sends into stamped frames."""
    sent: list[ChatEvent] = [Accept(), StartReply()]
    for status in ("running", "done"):
        sent += [
            Send("", tool_call_feedback=ToolFeedback(call.name, status)) for call in said.tools
        ]
    text = ""
    for piece in said.pieces:
        text += piece
        sent.append(Send(text))
    sent += [Success(text), End()]
    return tuple(
        (late_us + 100_000 + k * _STEP_US, encode(event).decode()) for k, event in enumerate(sent)
    )


Call = tuple["Operation", str, msgspec.Struct, tuple[msgspec.Struct, ...]]


def _calls(said: Talk, key: str) -> list[Call]:
    lock = f"msg_lock:{key}"
    turn = Turn(message_id=key, role="user", content="北京天气怎么样？", user_name="小明")
    reply = Turn(message_id="r-1", role="assistant", content=said.text, reply_to=key)
    messages: tuple[Message, ...] = (
        SystemMessage(said.system),
        UserMessage("[小明]: 北京天气怎么样？"),
    )
    later = (
        *messages,
        AssistantMessage(None, said.tools),
        *(ToolMessage(call.id, "晴，21 度") for call in said.tools),
    )
    chunks = tuple(Chunk(text=piece) for piece in said.pieces)
    return [
        (ops.MODEL_LOOKUP, "model", LookUp("gpt-4.1"), ()),
        (ops.LOCK_ACQUIRE, "message", Acquire(lock, 60.0), ()),
        (ops.TURN_PUT, "message", PutTurn(turn), ()),
        (ops.CLOCK_NOW, "prompt", NoArguments(), (ClockReading(BEGAN),)),
        (ops.MODEL_STREAM, "reply", _model(messages), ()),
        *((ops.TOOLS_RUN, "tool", call, (ToolResult("晴，21 度"),)) for call in said.tools),
        (ops.MODEL_STREAM, "reply", _model(later), chunks),
        (ops.IDS_NEW, "reply", NoArguments(), (NewId("r-1"),)),
        (ops.TURN_PUT, "reply", PutTurn(reply), ()),
        (ops.LOCK_RELEASE, "message", Release(lock), ()),
    ]


def _model(messages: tuple[Message, ...]) -> ModelCall:
    return ModelCall(model_id="gpt-4.1", messages=messages, temperature=0.7)


def _entry(
    seq: int,
    operation: Operation,
    site: str,
    arguments: msgspec.Struct,
    items: tuple[msgspec.Struct, ...],
) -> EntryRecord:
    return EntryRecord(
        seq=seq,
        port=operation.port,
        op=operation.name,
        site=site,
        at=seq * 1_000,
        ended=seq * 1_000 + 500,
        end="complete",
        args=msgspec.Raw(_written(arguments)),
        items=tuple(msgspec.Raw(msgspec.json.encode(item)) for item in items),
    )


def _plays(asked: list[Call], tape: tuple[EntryRecord, ...]) -> tuple[PlayRecord, ...]:
    """Play calls in their order: what asks otherwise is answered by the entry in its place."""
    plays = []
    for entry, (operation, site, arguments, _) in zip(tape, asked, strict=True):
        written = _written(arguments)
        same = written == bytes(entry.args)
        plays.append(
            PlayRecord(
                port=operation.port,
                op=operation.name,
                site=site,
                how="exact" if same else "nearest",
                at=entry.at + LATE_US,
                entry=entry.seq,
                args=None if same else msgspec.Raw(written),
            )
        )
    return tuple(plays)


def _written(arguments: msgspec.Struct) -> bytes:
    return msgspec.json.encode(arguments, order="sorted")


def store(path: Path, exchanges: Iterable[tuple[RunRecord, RunRecord]]) -> None:
    """Write exchanges as a segment, `BATCH` to a batch."""
    compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for lines in _batches(exchanges):
            file.write(compressor.compress(lines))


def _batches(exchanges: Iterable[tuple[RunRecord, RunRecord]]) -> Iterator[bytes]:
    lines: list[bytes] = []
    for runs in exchanges:
        lines += [encode_run(run) for run in runs]
        if len(lines) >= 2 * BATCH:
            yield b"".join(lines)
            lines = []
    if lines:
        yield b"".join(lines)
