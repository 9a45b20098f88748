"""Exchanges of the chat flow as they are captured: public, reusable, and easy to spoil.

`Script` says what one stack does for a request; `exchange` plays two scripts on one tape, as
serving and shadow do, and gives both runs' records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import zstandard

from contract import operations as ops
from contract.flows.chat import (
    CHAT,
    Accept,
    ChatEvent,
    End,
    Send,
    StartReply,
    Success,
    ToolFeedback,
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
from contract.records import (
    EntryRecord,
    ErrorRecord,
    Outcome,
    PlayRecord,
    RequestRecord,
    Role,
    RunRecord,
    encode_run,
)
from contract.stores import Acquire, ClockReading, NewId, PutTurn, Release, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from contract.operations import Operation

BEGAN = 1_795_000_000_000_000
STEP_US = 40_000
WEATHER = (
    "今天北京晴，",
    "气温二十一度，",
    "微风。",
    "适合出门散步，",
    "傍晚可能转凉，",
    "记得带一件外套。",
)
SYSTEM = (
    "你是一个友好的助手。今天是 2026-11-21，现在是 10:00:00。\n请根据以下对话历史回答用户问题。"
)

Events = list["ChatEvent"]


@dataclass(frozen=True)
class Script:
    """What one stack does: what it calls, sends and stores.

    `tools` are called in one round before the answer; `pieces` is the answer as it is sent, one
    SEND a piece; `final` and `stored` stand in for the whole answer in SUCCESS and in the store.
    `spoil` changes the events last, `upset` the calls, `framed` each frame.
    """

    system: str = SYSTEM
    user: str = "[小明]: 北京天气怎么样？"
    temperature: float = 0.7
    tools: tuple[ToolCall, ...] = ()
    pieces: tuple[str, ...] = WEATHER
    final: str | None = None
    stored: str | None = None
    outcome: Outcome = "completed"
    error: ErrorRecord | None = None
    spoil: Callable[[Events], Events] = list
    upset: Callable[[list[ScriptedCall]], list[ScriptedCall]] = list
    framed: Callable[[str], str] = str
    step_us: int = STEP_US

    @property
    def text(self) -> str:
        """The whole answer."""
        return "".join(self.pieces)

    def but(self, **changes: Any) -> Script:
        """Return this script with some fields replaced."""
        return replace(self, **changes)


@dataclass(frozen=True)
class ScriptedCall:
    """One call a script makes, and its results."""

    operation: Operation
    site: str
    arguments: msgspec.Struct
    items: tuple[msgspec.Struct, ...] = ()

    @property
    def args(self) -> bytes:
        """The call's canonical arguments."""
        return msgspec.json.encode(self.arguments, order="sorted")


def tool(k: int = 0, arguments: str = '{"city":"北京"}', name: str = "get_weather") -> ToolCall:
    """Return the k-th tool call of a round."""
    return ToolCall(f"call_0_{k}", name, arguments)


def calls(script: Script, message_id: str) -> list[ScriptedCall]:
    """List the calls of a chat stack, in order."""
    lock = f"msg_lock:{message_id}"
    turn = Turn(message_id=message_id, role="user", content="北京天气怎么样？", user_name="小明")
    made = [
        ScriptedCall(ops.MODEL_LOOKUP, "model", LookUp("gpt-4.1")),
        ScriptedCall(ops.LOCK_ACQUIRE, "message", Acquire(lock, 60.0)),
        ScriptedCall(ops.TURN_PUT, "message", PutTurn(turn)),
        ScriptedCall(ops.CLOCK_NOW, "prompt", NoArguments(), (ClockReading(BEGAN),)),
        *_rounds(script),
        ScriptedCall(ops.IDS_NEW, "reply", NoArguments(), (NewId("r-1"),)),
        ScriptedCall(ops.TURN_PUT, "reply", PutTurn(_reply(script, message_id))),
        ScriptedCall(ops.LOCK_RELEASE, "message", Release(lock)),
    ]
    return script.upset(made)


def _reply(script: Script, message_id: str) -> Turn:
    text = script.text if script.stored is None else script.stored
    return Turn(message_id="r-1", role="assistant", content=text, reply_to=message_id)


def _rounds(script: Script) -> list[ScriptedCall]:
    messages: tuple[Message, ...] = (SystemMessage(script.system), UserMessage(script.user))
    if not script.tools:
        return [_ask(script, messages)]
    first = _ask(script, messages)
    used = [
        ScriptedCall(ops.TOOLS_RUN, "tool", call, (ToolResult("晴，21 度"),))
        for call in script.tools
    ]
    messages += (AssistantMessage(None, script.tools),)
    messages += tuple(ToolMessage(call.id, "晴，21 度") for call in script.tools)
    return [first, *used, _ask(script, messages)]


def _ask(script: Script, messages: tuple[Message, ...]) -> ScriptedCall:
    call = ModelCall(model_id="gpt-4.1", messages=messages, temperature=script.temperature)
    return ScriptedCall(
        ops.MODEL_STREAM, "reply", call, tuple(Chunk(text=piece) for piece in script.pieces)
    )


def events(script: Script) -> Events:
    """List what a chat stack sends."""
    sent: Events = [Accept(), StartReply()]
    for call in script.tools:
        sent.append(Send("", tool_call_feedback=ToolFeedback(call.name, "running")))
    for call in script.tools:
        sent.append(Send("", tool_call_feedback=ToolFeedback(call.name, "done")))
    text = ""
    for piece in script.pieces:
        text += piece
        sent.append(Send(text))
    sent += [Success(script.text if script.final is None else script.final), End()]
    return script.spoil(sent)


def frames(script: Script, late_us: int = 0) -> tuple[tuple[int, str], ...]:
    """Put a script's events into stamped frames."""
    return tuple(
        (late_us + 100_000 + k * script.step_us, script.framed(CHAT.encode(event).decode()))
        for k, event in enumerate(events(script))
    )


def tape_of(made: Iterable[ScriptedCall]) -> tuple[EntryRecord, ...]:
    """Record calls."""
    return tuple(
        EntryRecord(
            seq=seq,
            port=call.operation.port,
            op=call.operation.name,
            site=call.site,
            at=seq * 1_000,
            ended=seq * 1_000 + 500,
            end="complete",
            args=msgspec.Raw(call.args),
            items=tuple(msgspec.Raw(msgspec.json.encode(item)) for item in call.items),
        )
        for seq, call in enumerate(made)
    )


def live(tape: tuple[EntryRecord, ...]) -> tuple[PlayRecord, ...]:
    """Return the play log of the run that recorded a tape."""
    return tuple(
        PlayRecord(port=e.port, op=e.op, site=e.site, how="live", at=e.at, entry=e.seq)
        for e in tape
    )


def played(made: Iterable[ScriptedCall], tape: tuple[EntryRecord, ...]) -> tuple[PlayRecord, ...]:
    """Play calls from a tape: the exact one, else the nearest at that site, else none."""
    free = {entry.seq: entry for entry in tape}
    plays: list[PlayRecord] = []
    for call in made:
        there = [
            entry
            for entry in free.values()
            if (entry.port, entry.op, entry.site)
            == (call.operation.port, call.operation.name, call.site)
        ]
        exact = next((entry for entry in there if bytes(entry.args) == call.args), None)
        entry = exact or next(iter(there), None)
        if entry is not None:
            del free[entry.seq]
        plays.append(
            PlayRecord(
                port=call.operation.port,
                op=call.operation.name,
                site=call.site,
                how="exact" if exact else "nearest" if entry else "missed",
                entry=None if entry is None else entry.seq,
                args=None if exact else msgspec.Raw(call.args),
            )
        )
    return tuple(plays)


def exchange(
    legacy: Script | None = None,
    graph: Script | None = None,
    *,
    number: int = 0,
    served: str = "legacy",
    second: Role = "shadow",
) -> tuple[RunRecord, RunRecord]:
    """Return one exchange: the run that recorded the tape, and the one that played it."""
    scripts = {"legacy": legacy or Script(), "graph": graph or legacy or Script()}
    other = "graph" if served == "legacy" else "legacy"
    message_id = f"m-{number}"
    tape = tape_of(calls(scripts[served], message_id))
    first = _run(scripts[served], number, served, served, "serving")
    body = msgspec.Raw(
        msgspec.json.encode({"message_id": message_id, "content": "北京天气怎么样？"})
    )
    return (
        msgspec.structs.replace(
            first, tape=tape, plays=live(tape), request=RequestRecord(body, msgspec.Raw(b"{}"))
        ),
        msgspec.structs.replace(
            _run(scripts[other], number, other, served, second),
            plays=played(calls(scripts[other], message_id), tape),
        ),
    )


def _run(script: Script, number: int, stack: str, served: str, role: Role) -> RunRecord:
    return RunRecord(
        v=1,
        exchange=f"x-{number:05}",
        flow="chat",
        role=role,
        stack=stack,
        assigned=served,
        served=served,
        began=BEGAN + number * 1_000_000,
        frames=frames(script, late_us=0 if role == "serving" else 3_000),
        outcome=script.outcome,
        error=script.error,
    )


def lines(*exchanges: tuple[RunRecord, ...]) -> bytes:
    """Write exchanges as lines."""
    return b"".join(encode_run(run) for runs in exchanges for run in runs)


def batch(*exchanges: tuple[RunRecord, ...]) -> bytes:
    """Write exchanges as one complete zstd frame, checksum included."""
    return zstandard.ZstdCompressor(write_checksum=True).compress(lines(*exchanges))


def store(folder: Path, *batches: bytes, name: str = "segment-0.jsonl.zst") -> Path:
    """Write batches into a folder of captures; returns the folder."""
    day = folder / "flow=chat" / "date=2026-11-21"
    day.mkdir(parents=True, exist_ok=True)
    (day / name).write_bytes(b"".join(batches))
    return folder
