"""Recorded bodies of every built-in dialect, made from one story, and their comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from compare.findings import Finding, kind_of
from compare.input.recordings import Recordings
from compare.recordings import PlainQuestion, compare_recordings
from compare.streams.dialects import RecordedDialect, find_dialect
from contract.flows import SPECS
from contract.flows import companion as wire
from contract.flows.chat import CHAT, Accept, ChatEvent, End, Send, StartReply, Success
from contract.flows.ops import OPS, OpsDone, OpsFinal, OpsResult
from contract.flows.pipeline import PIPELINE, PipelineMessage, PipelineToken, TokenInfo
from contract.flows.session import (
    SESSION,
    AnswerData,
    FinalMessage,
    SessionDone,
    SessionEvent,
    SessionText,
    TextData,
    Thinking,
)
from contract.model import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from compare.tally import Tally
    from contract.equality import Chunking

PIECES = ("今天", "北京晴，", "带一件 🧥", "。")
THOUGHTS = ("Look ", "outside.")
ARGUMENTS = '{"city":"北京","days":2}'


def sse(value: object, name: str = "") -> bytes:
    """Frame one event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + msgspec.json.encode(value) + b"\n\n"


def line(value: object) -> bytes:
    """Write one line."""
    return msgspec.json.encode(value) + b"\n"


@dataclass(frozen=True)
class Story:
    """What is told: thoughts, a tool call, a text; each cut into pieces."""

    pieces: Sequence[str] = PIECES
    thoughts: Sequence[str] = THOUGHTS
    arguments: Sequence[str] = (ARGUMENTS,)
    number: int = 0


def openai(story: Story) -> bytes:
    """Tell it in chunks of a chat completion; ids and times differ by the story's number."""

    def chunk(delta: dict[str, Any], finish: str | None = None, **more: object) -> bytes:
        choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
        head = {"id": f"c-{story.number}", "created": 1_700_000_000 + story.number}
        return sse({**head, "object": "chat.completion.chunk", "choices": choices, **more})

    def call(piece: dict[str, Any], function: dict[str, Any]) -> bytes:
        return chunk({"tool_calls": [{"index": 0, **piece, "function": function}]})

    return b"".join(
        [
            chunk({"role": "assistant", "content": None}),
            *(chunk({"reasoning_content": piece}) for piece in story.thoughts),
            call({"id": f"t-{story.number}", "type": "function"}, {"name": "get_weather"}),
            *(call({}, {"arguments": piece}) for piece in story.arguments),
            *(chunk({"content": piece}) for piece in story.pieces),
            chunk({}, "stop"),
            sse({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 9}}),
            b"data: [DONE]\n\n",
        ]
    )


def anthropic(story: Story) -> bytes:
    """Tell it in blocks of a message."""

    def event(name: str, **more: object) -> bytes:
        return sse({"type": name, **more}, name)

    def block(index: int, begun: dict[str, Any], deltas: list[dict[str, Any]]) -> bytes:
        begins = event("content_block_start", index=index, content_block=begun)
        grows = [event("content_block_delta", index=index, delta=delta) for delta in deltas]
        return begins + b"".join(grows) + event("content_block_stop", index=index)

    thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in story.thoughts]
    texts = [{"type": "text_delta", "text": piece} for piece in story.pieces]
    arguments = [{"type": "input_json_delta", "partial_json": piece} for piece in story.arguments]
    tool = {"type": "tool_use", "id": f"t-{story.number}", "name": "get_weather", "input": {}}
    return b"".join(
        [
            event("message_start", message={"id": f"m-{story.number}", "role": "assistant"}),
            block(0, {"type": "thinking", "thinking": ""}, thoughts),
            event("ping"),
            block(1, tool, arguments),
            block(2, {"type": "text", "text": ""}, texts),
            event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 9}),
            event("message_stop"),
        ]
    )


def ndjson(story: Story) -> bytes:
    """Tell it in lines of messages; a call comes whole."""

    def said(**message: object) -> bytes:
        head = {"model": "m", "created_at": f"2026-11-21T10:00:{story.number:02}Z"}
        return line({**head, "message": {"role": "assistant", **message}, "done": False})

    called = {"name": "get_weather", "arguments": msgspec.json.decode("".join(story.arguments))}
    return b"".join(
        [
            *(said(content="", thinking=piece) for piece in story.thoughts),
            said(content="", tool_calls=[{"function": called}]),
            *(said(content=piece) for piece in story.pieces),
            line({"done": True, "done_reason": "stop", "total_duration": story.number}),
        ]
    )


def ai_sdk(story: Story) -> bytes:
    """Tell it in parts of an AI SDK message; tools run between two steps."""

    def part(kind: str, **more: object) -> bytes:
        return sse({"type": kind, **more})

    def block(kind: str, pieces: Sequence[str]) -> bytes:
        named = {"id": f"{kind}-{story.number}"}
        grows = [part(f"{kind}-delta", **named, delta=piece) for piece in pieces]
        return b"".join([part(f"{kind}-start", **named), *grows, part(f"{kind}-end", **named)])

    call = {"toolCallId": f"t-{story.number}"}
    arguments = msgspec.json.decode("".join(story.arguments))
    return b"".join(
        [
            part("start", messageId=f"m-{story.number}"),
            part("start-step"),
            block("reasoning", story.thoughts),
            part("tool-input-start", **call, toolName="get_weather"),
            *(part("tool-input-delta", **call, inputTextDelta=p) for p in story.arguments),
            part("tool-input-available", **call, toolName="get_weather", input=arguments),
            part("tool-output-available", **call, output={"sky": "clear"}),
            part("finish-step"),
            part("start-step"),
            block("text", story.pieces),
            part("finish-step"),
            part("finish", finishReason="stop"),
            b"data: [DONE]\n\n",
        ]
    )


def langgraph(story: Story) -> bytes:
    """Tell it in the messages of a LangGraph run; lines end as its server ends them."""

    def event(name: str, data: object) -> bytes:
        return sse(data, name).replace(b"\n", b"\r\n")

    def message(kind: str, content: object, **more: object) -> bytes:
        head = {"content": content, "additional_kwargs": {}, "type": kind, "name": None}
        metadata = {"langgraph_node": "agent", "langgraph_checkpoint_ns": f"agent:{story.number}"}
        return event("messages", [{**head, "id": f"run-{story.number}", **more}, metadata])

    def chunk(content: object, *calls: dict[str, Any]) -> bytes:
        return message("AIMessageChunk", content, tool_calls=[], tool_call_chunks=calls)

    def call(name: str | None, arguments: str) -> dict[str, Any]:
        known = name and f"t-{story.number}"
        return {"name": name, "args": arguments, "id": known, "index": 0, "type": "tool_call_chunk"}

    return b"".join(
        [
            event("metadata", {"run_id": f"r-{story.number}", "attempt": 1}),
            *(chunk([{"type": "thinking", "thinking": p, "index": 0}]) for p in story.thoughts),
            chunk("", call("get_weather", "")),
            *(chunk("", call(None, piece)) for piece in story.arguments),
            message("tool", "clear", tool_call_id=f"t-{story.number}", status="success"),
            *(chunk(piece) for piece in story.pieces),
            chunk(""),
        ]
    )


def text(story: Story) -> bytes:
    """Tell the text alone, as it is."""
    return "".join(story.pieces).encode()


def chat(story: Story) -> bytes:
    """Tell the text alone on the chat flow's own wire; cumulative."""
    events: list[ChatEvent] = [Accept(), StartReply()]
    events += [Send("".join(story.pieces[: k + 1])) for k in range(len(story.pieces))]
    events += [Success("".join(story.pieces)), End()]
    return b"".join(map(CHAT.encode, events))


def session(story: Story) -> bytes:
    """Tell the text alone on the session flow's wire: pieces, and the whole at the end."""
    usage, whole = Usage(4, 9, 13), FinalMessage("m", "assistant", "")
    final = msgspec.structs.replace(whole, content="".join(story.pieces))
    events: list[SessionEvent] = [
        Thinking(),
        *(SessionText(TextData(piece)) for piece in story.pieces),
    ]
    return b"".join(map(SESSION.encode, [*events, SessionDone(AnswerData(final, usage))]))


def companion(story: Story) -> bytes:
    """Tell the text alone on the companion flow's wire, whose events stand in the frames' names."""
    events = [
        wire.Emotion("neutral", 0.0, 0.5),
        *(wire.CompanionText(piece) for piece in story.pieces),
        wire.CompanionDone("completed"),
    ]
    return b"".join(map(wire.COMPANION.encode, events))


def ops(story: Story) -> bytes:
    """Tell the text alone on the ops flow's wire: at the end, and whole."""
    text = "".join(story.pieces)
    done = OpsResult("system", "disk", ok=True, message="read")
    return b"".join(map(OPS.encode, [done, OpsFinal(text), OpsDone("completed")]))


def pipeline(story: Story) -> bytes:
    """Tell the text alone on the pipeline flow's wire: pieces, and the whole at the end."""
    text = "".join(story.pieces)
    whole = PipelineMessage(
        success=True,
        message=text,
        token_info=TokenInfo(4, 100, "continue"),
        end_intent=False,
        memories=(),
        errors=(),
    )
    pieces = (PipelineToken(piece) for piece in story.pieces)
    return b"".join(map(PIPELINE.encode, [*pieces, whole]))


TOLD: dict[str, Callable[[Story], bytes]] = {
    "openai": openai,
    "anthropic-messages": anthropic,
    "ndjson": ndjson,
    "ai-sdk": ai_sdk,
    "langgraph": langgraph,
    "text": text,
    "chat": chat,
    "session": session,
    "companion": companion,
    "ops": ops,
    "pipeline": pipeline,
}
DIALECTS = tuple(TOLD)


def dialect(name: str) -> RecordedDialect:
    """Give a dialect by name."""
    return find_dialect(name, SPECS)


def compared(
    folder: Path, using: RecordedDialect, legacy: bytes, graph: bytes, chunking: Chunking = "ignore"
) -> Tally:
    """Compare two bodies as files."""
    for side, body in (("legacy", legacy), ("graph", graph)):
        (folder / f"{side}.txt").write_bytes(body)
    return compare_recordings(
        Recordings(folder / "legacy.txt"),
        Recordings(folder / "graph.txt"),
        PlainQuestion(using, chunking),
    )


def found(tally: Tally) -> list[Finding]:
    """List everything found in the exemplars."""
    exemplars = {x.exchange: x for c in tally.clusters.ordered() for x in c.exemplars}
    return [finding for exemplar in exemplars.values() for finding in exemplar.findings]


def causes(tally: Tally) -> list[tuple[str, str, str]]:
    """List (layer, kind, path) of what follows from nothing else."""
    return [(f.layer, kind_of(f), f.path) for f in found(tally) if f.after is None]
