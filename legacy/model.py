"""Prompts by Jinja2, questions to the model by the OpenAI SDK, and answers put together by hand."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, TemplateNotFound
from openai.types.chat import ChatCompletionChunk

from cutover import StackFailed
from effects.models import ModelEntry
from effects.tools import ToolError
from effects.world import current
from rules.models import (
    CALL_FIELDS,
    MESSAGE_FIELDS,
    REASONING,
    WORDLESS_REASONS,
    check_chunk,
    runs_tools,
)
from rules.prompts import default_prompt, tool_error

log = logging.getLogger(__name__)

Message = dict[str, Any]

PROMPTS = Path(__file__).parent / "prompts"
"""The prompts of this stack, a template each."""


# Prompts are no HTML, and escaping would change them.
_TEMPLATES = Environment(loader=FileSystemLoader(PROMPTS), autoescape=False)  # noqa: S701


def render(name: str, parameters: Mapping[str, Any]) -> str:
    """Return a prompt, filled in; a missing file is replaced by the built-in one, and logged."""
    try:
        return _TEMPLATES.get_template(f"{name}.j2").render(parameters)
    except TemplateNotFound:
        log.warning("prompt=%s missing folder=%s: the built-in one stands in", name, PROMPTS)
        return default_prompt(name, parameters)


@dataclass(slots=True)
class ToolCall:
    """A tool call as it is put together; `arguments` is the JSON text as the model wrote it."""

    id: str = ""
    name: str = ""
    arguments: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    def message(self) -> Message:
        """Return the call as it stands in the assistant's message."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function, **self.extra}


@dataclass(slots=True)
class Answer:
    """An answer of the model, added up piece by piece; `usage` may be that of several."""

    text: str = ""
    reasoning: str = ""
    finish: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    opaque: dict[str, Any] = field(default_factory=dict)
    usage: Counter[str] = field(default_factory=Counter)
    _by_index: dict[int, ToolCall] = field(default_factory=dict)

    def add(self, chunk: ChatCompletionChunk) -> tuple[str, str]:
        """Add a chunk; return the text and the reasoning that it brings."""
        if not chunk.choices:
            return "", ""
        choice = chunk.choices[0]  # whatever its index: one choice is asked for
        self.finish = choice.finish_reason or self.finish
        delta: Any = getattr(choice, "delta", None)  # of an answer whose shape is unknown
        if delta is None:
            return "", ""
        extra = delta.model_extra or {}
        text = (delta.content or "") + (delta.refusal or "")
        reasoning = next((extra[name] for name in REASONING if extra.get(name)), "")
        self.text += text
        self.reasoning += reasoning
        for name in MESSAGE_FIELDS:
            if extra.get(name):
                self.opaque[name] = _joined(self.opaque.get(name), extra[name])
        for piece in delta.tool_calls or ():
            self._add_call(piece)
        return text, reasoning

    def _add_call(self, piece: Any) -> None:
        index, function = getattr(piece, "index", None), piece.function
        call = self._call_of(index, piece.id or "", named=bool(function and function.name))
        call.id = call.id or piece.id or ""
        if function is not None:
            call.name += function.name or ""
            call.arguments += function.arguments or ""
        for name in CALL_FIELDS:
            if (value := (piece.model_extra or {}).get(name)) is not None:
                call.extra[name] = value

    def _call_of(self, index: int | None, call_id: str, *, named: bool) -> ToolCall:
        """Return the call that a piece belongs to, by id, then index, then order.

        An id that is new begins a call, also under an index that was used before; without ids, a
        name under such an index does.
        """
        known = next((one for one in self.calls if call_id and one.id == call_id), None)
        if known is None and not call_id:
            known = self.calls[-1] if index is None and self.calls else None
            known = self._by_index.get(index, known) if index is not None else known
            if known is not None and named and known.name:
                known = None
        if known is None:
            known = ToolCall()
            self.calls.append(known)
        if index is not None:
            self._by_index[index] = known
        return known

    @property
    def runs(self) -> bool:
        """Whether the tools run that it calls."""
        return runs_tools(self.finish, len(self.calls))

    def check(self) -> None:
        """Raise `StackFailed` where the answer broke off, or holds nothing that is understood."""
        if not self.finish:
            raise StackFailed(code="model_truncated", blame="world")
        if not (self.text or self.reasoning or self.calls or self.finish in WORDLESS_REASONS):
            raise StackFailed(code="model_empty", blame="world")
        if self.calls and not self.runs:
            log.warning("calls=%d not run finish=%s", len(self.calls), self.finish)

    def message(self) -> Message:
        """Return the assistant's message that goes back to the model before tool results."""
        calls = [call.message() for call in self.calls]
        content = {"role": "assistant", "content": self.text or None, **self.opaque}
        return {**content, "tool_calls": calls} if calls else content


def _joined(before: Any, value: Any) -> Any:
    if isinstance(before, str) and isinstance(value, str):
        return before + value
    if isinstance(before, list) and isinstance(value, list):
        return before + value
    return value


def offered(entry: ModelEntry, *, enabled: bool) -> list[Message]:
    """Return the tools that a model is offered, as the API takes them."""
    specs = current().tools.specs if enabled and entry.tools else ()
    return [{"type": "function", "function": msgspec.to_builtins(one)} for one in specs]


async def stream(
    entry: ModelEntry,
    messages: Sequence[Message],
    answer: Answer,
    tools: Sequence[Message] = (),
    *,
    last: bool = False,
    **parameters: Any,
) -> AsyncIterator[tuple[str, str]]:
    """Ask the model, add up its `answer`, and yield the text and the reasoning of each chunk.

    In the `last` round no tool may be called. It reads to the very end: the usage may come after
    the finish. Raises the SDK's errors, and `StackFailed` for a chunk that cannot be read, and as
    `Answer.check` does.
    """
    given = {name: value for name, value in parameters.items() if value is not None}
    if tools:
        given |= {"tools": tools, "tool_choice": "none" if last else "auto"}
    given |= {"model": entry.name, "messages": list(messages)}
    given |= {"stream": True, "stream_options": {"include_usage": True}}
    chunks: Any = await current().models.openai(entry).chat.completions.create(**given)
    counted: Any = None
    try:
        async with chunks:
            async for chunk in chunks:
                check_chunk(chunk)
                counted = chunk.usage or counted
                yield answer.add(chunk)
    except ValueError as error:
        raise StackFailed(code="model_error", blame="world", detail=str(error)) from error
    if counted is not None:
        asked, said = counted.prompt_tokens or 0, counted.completion_tokens or 0
        whole = getattr(counted, "total_tokens", None)  # some servers leave it out
        total = asked + said if whole is None else whole
        answer.usage.update(prompt_tokens=asked, completion_tokens=said, total_tokens=total)
    answer.check()


async def ask(entry: ModelEntry, messages: Sequence[Message], **parameters: Any) -> Answer:
    """Return the model's whole answer; raises as `stream` does."""
    answer = Answer()
    async for _ in stream(entry, messages, answer, **parameters):
        pass
    return answer


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool call gave: what the model is told, and whether it worked."""

    call: ToolCall
    content: str
    ok: bool

    def message(self) -> Message:
        """Return the message that tells the model."""
        call = {"tool_call_id": self.call.id, "name": self.call.name}
        return {"role": "tool", **call, "content": self.content}


async def run_tools(
    calls: Sequence[ToolCall], tools: Sequence[Message], *, user_id: str = "", session_id: str = ""
) -> AsyncIterator[ToolResult]:
    """Run tool calls at the same time; yield the results in order, each once those below are in."""
    names = {tool["function"]["name"] for tool in tools}
    tasks = [asyncio.create_task(_run(call, names, user_id, session_id)) for call in calls]
    try:
        for task in tasks:
            yield await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(call: ToolCall, names: set[str], user_id: str, session_id: str) -> ToolResult:
    if call.name not in names:
        return ToolResult(call, tool_error("unknown_tool"), ok=False)
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        return ToolResult(call, tool_error("bad_arguments"), ok=False)
    users = {"user_id": user_id, "session_id": session_id}
    try:
        return ToolResult(call, await current().tools.call(call.name, arguments, **users), ok=True)
    except ToolError as error:
        return ToolResult(call, tool_error(error.code), ok=False)
