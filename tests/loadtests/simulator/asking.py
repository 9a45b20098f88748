"""Asking the simulator's pure core: requests in few words, streams read back."""

from collections.abc import Sequence

import msgspec

from loadtests.simulator import AnswerScript, ChatCompletionRequest

ALL = ("calculate", "current_time", "convert_units", "search_memory")

Event = dict[str, object]


def tools(*names: str) -> list[dict[str, object]]:
    """Offer tools by name."""
    return [{"type": "function", "function": {"name": name, "parameters": {}}} for name in names]


def asked(
    text: str, *later: dict[str, object], offer: Sequence[str] = (), **fields: object
) -> ChatCompletionRequest:
    """Ask as Ann does, streamed; `later` are the messages after hers."""
    messages: list[dict[str, object]] = [
        {"role": "system", "content": "You are kind."},
        {"role": "user", "content": f"[Ann]: {text}"},
        *later,
    ]
    body = {"model": "sim-chat", "stream": True, "messages": messages} | fields
    if offer:
        body["tools"] = tools(*offer)
    return msgspec.convert(body, ChatCompletionRequest)


def events(script: AnswerScript) -> list[Event]:
    """Read the objects of a stream back; `[DONE]` is left out."""
    wire = b"".join(chunk.wire for chunk in script.chunks)
    lines = [part.removeprefix(b"data: ") for part in wire.split(b"\n\n") if part]
    return [msgspec.json.decode(line, type=Event) for line in lines if line != b"[DONE]"]


class Delta(msgspec.Struct):
    """What a test reads of a delta."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[dict[str, object]] = []


class Choice(msgspec.Struct):
    """What a test reads of a choice."""

    delta: Delta
    finish_reason: str | None = None


def choices(script: AnswerScript) -> list[Choice]:
    """Read the choices of a stream back."""
    return [
        choice
        for event in events(script)
        for choice in msgspec.convert(event.get("choices", []), list[Choice])
    ]


def text(script: AnswerScript) -> str:
    """Join the answer's text."""
    return "".join(choice.delta.content or "" for choice in choices(script))


def finish(script: AnswerScript) -> str | None:
    """Read the finish reason; None when the stream has none."""
    return choices(script)[-1].finish_reason


class Function(msgspec.Struct):
    """A function's name, in the first part, and a part of its arguments."""

    arguments: str
    name: str | None = None


class Part(msgspec.Struct):
    """A part of a tool call."""

    index: int
    function: Function
    id: str | None = None


def parts(script: AnswerScript) -> list[Part]:
    """Read every part of every tool call, in the order of the stream."""
    found = [part for choice in choices(script) for part in choice.delta.tool_calls]
    return msgspec.convert(found, list[Part])


def calls(script: AnswerScript) -> list[tuple[str, str]]:
    """Assemble the tool calls by index: name and arguments."""
    whole: dict[int, tuple[str, str]] = {}
    for part in parts(script):
        name, arguments = whole.get(part.index, (part.function.name or "", ""))
        whole[part.index] = (name, arguments + part.function.arguments)
    return [whole[index] for index in sorted(whole)]


def called(*given: tuple[str, str, str], result: str) -> list[dict[str, object]]:
    """One finished tool round: calls as (id, name, arguments), all with the same result."""
    listed = [
        {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}
        for key, name, arguments in given
    ]
    said: dict[str, object] = {"role": "assistant", "content": None, "tool_calls": listed}
    told: list[dict[str, object]] = [
        {"role": "tool", "tool_call_id": key, "content": result} for key, _, _ in given
    ]
    return [said, *told]
