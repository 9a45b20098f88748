"""The chat model: `ChatOpenAI`, with what it drops and repairs set right."""

import json
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import httpx2
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import ToolCall, ToolCallChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_openai import ChatOpenAI
from langgraph.constants import TAG_NOSTREAM

from cutover import StackFailed, TapeTransport
from effects.models import RETRIES, ModelEntry, Models
from effects.world import current
from rules.models import (
    CALL_FIELDS,
    MESSAGE_FIELDS,
    REASONING,
    WORDLESS_REASONS,
    check_chunk,
    runs_tools,
)

log = logging.getLogger(__name__)

OPAQUE = "opaque"
"""Where `additional_kwargs` keep what goes back to the provider: JSON texts, one a chunk."""
CALLS = "calls"
"""Where they keep an answer's tool calls, in order, with the arguments as the model wrote them."""
REASONING_TEXT = "reasoning_text"
"""Where they keep the text of the reasoning."""


class ReasoningChat(ChatOpenAI):
    """`ChatOpenAI` that keeps reasoning and opaque fields, and tells tool calls apart by their ids.

    LangChain drops `reasoning_content`, merges calls that share an index, drops calls without one,
    and leaves the name of a tool message out.
    """

    def _convert_chunk_to_generation_chunk(
        self, chunk: dict[str, Any], default_chunk_class: type, base_generation_info: Any
    ) -> ChatGenerationChunk | None:
        check_chunk(chunk)
        choices = chunk.get("choices") or []
        if choices and not isinstance(choices[0].get("delta"), dict):
            choices[0]["delta"] = {}
        delta = choices[0]["delta"] if choices else {}
        for piece in delta.get("tool_calls") or []:
            piece.setdefault("index", None)
            piece["function"] = piece.get("function") or {}
        made = super()._convert_chunk_to_generation_chunk(
            chunk, default_chunk_class, base_generation_info
        )
        if made is not None and delta:
            message = made.message
            message.content = f"{message.content}{delta.get('refusal') or ''}"
            if reasoning := next((delta[name] for name in REASONING if delta.get(name)), ""):
                message.additional_kwargs[REASONING_TEXT] = reasoning
            if opaque := _opaque(delta):
                message.additional_kwargs[OPAQUE] = [json.dumps(opaque)]
        return made

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        places, empty = _Places(), True
        try:
            async for chunk in super()._astream(*args, **kwargs):
                empty = False
                if isinstance(chunk.message, AIMessageChunk):
                    for piece in chunk.message.tool_call_chunks:
                        piece["index"] = places.of(piece)
                yield chunk
        except AttributeError as error:  # LangChain dumps a chunk that is no object
            raise StackFailed(code="model_error", blame="world", detail=str(error)) from error
        if empty:  # LangChain would raise a ValueError, as for a chunk that is no JSON
            raise StackFailed(code="model_truncated", blame="world")

    def _get_request_payload(self, input_: Any, **kwargs: Any) -> dict[str, Any]:
        payload: dict[str, Any] = super()._get_request_payload(input_, **kwargs)
        messages = self._convert_input(input_).to_messages()
        for message, sent in zip(messages, payload.get("messages", ()), strict=False):
            if isinstance(message, ToolMessage) and message.name:
                sent["name"] = message.name
            if isinstance(message, AIMessage):
                _give_back(message, sent)
        return payload


class _Places:
    """Numbers the tool calls of one stream: by id, then by index, then by order."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._named: set[int] = set()
        self._last_at: dict[int, int] = {}

    def of(self, piece: ToolCallChunk) -> int:
        """Return the number of the call that a piece belongs to."""
        call_id, named = piece.get("id") or "", bool(piece.get("name"))
        index = piece["index"] if isinstance(piece["index"], int) else None
        if call_id:
            place = self._ids.index(call_id) if call_id in self._ids else -1
        else:
            place = len(self._ids) - 1 if index is None else self._last_at.get(index, -1)
            if named and place in self._named:
                place = -1
        if place < 0:
            place = len(self._ids)
            self._ids.append(call_id)
        if named:
            self._named.add(place)
        if index is not None:
            self._last_at[index] = place
        return place


def _opaque(delta: dict[str, Any]) -> dict[str, Any]:
    found = {name: delta[name] for name in MESSAGE_FIELDS if delta.get(name)}
    calls = [
        {"id": piece.get("id"), **{name: piece[name] for name in CALL_FIELDS if name in piece}}
        for piece in delta.get("tool_calls") or []
        if any(name in piece for name in CALL_FIELDS)
    ]
    return {**found, "tool_calls": calls} if calls else found


def _give_back(message: AIMessage, sent: dict[str, Any]) -> None:
    """Put what a provider sent beside its answer into the message that goes back to it."""
    if calls := message.additional_kwargs.get(CALLS):
        sent["content"] = sent.get("content") or None
        sent["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in calls
        ]
    for text in message.additional_kwargs.get(OPAQUE, ()):
        for name, value in json.loads(text).items():
            if name == "tool_calls":
                for extra in value:
                    call_id = extra.pop("id")
                    for call in sent.get("tool_calls", ()):
                        if call["id"] == call_id:
                            call.update(extra)
            elif isinstance(value, str | list) and type(sent.get(name)) is type(value):
                sent[name] = sent[name] + value
            else:
                sent[name] = value


_BLOCKING = httpx2.Client(transport=TapeTransport())
"""Unused: LangChain would make one for each model, and read all certificates for it."""
_models: WeakKeyDictionary[Models, dict[Any, ReasoningChat]] = WeakKeyDictionary()


def find_model(model_id: str) -> ModelEntry:
    """Return the registry's entry of a model; raises `StackFailed`."""
    return current().models.find(model_id)


def chat_model(entry: ModelEntry, **parameters: Any) -> ReasoningChat:
    """Return the model of a registry entry, on the HTTP client of its provider."""
    models = current().models
    known = _models.setdefault(models, {})
    key = (entry, tuple(sorted(parameters.items())))
    if key not in known:  # making one takes a millisecond
        given = {name: value for name, value in parameters.items() if value is not None}
        known[key] = ReasoningChat(
            model=entry.name,
            base_url=entry.base_url,
            api_key=lambda: entry.key,
            http_client=_BLOCKING,
            http_async_client=models.http_client(entry),
            max_retries=RETRIES,
            streaming=True,
            stream_usage=True,
            stream_chunk_timeout=None,  # silence is bounded by the client, without a task a chunk
            **given,
        )
    return known[key]


async def ask(
    model: ReasoningChat,
    question: Sequence[BaseMessage],
    tools: Sequence[BaseTool] = (),
    *,
    last: bool = False,
    shown: bool = True,
    heard: list[str] | None = None,
) -> AIMessage:
    """Return the model's answer; where it is `shown`, LangGraph streams its pieces.

    In the `last` round no tool may be called. The answer's tool calls are what the model wrote:
    LangChain closes the brackets of arguments that were cut, such calls are none here. Raises
    `StackFailed` for an answer that broke off, or that holds nothing that is understood, and the
    errors of the OpenAI SDK; `heard` then has what was said.
    """
    bound: Runnable[Any, Any] = model
    if tools:
        bound = model.bind_tools(tools, tool_choice="none" if last else "auto")
    answer: AIMessageChunk | None = None
    counted: UsageMetadata | None = None
    metadata: dict[str, Any] = {}
    try:
        async for chunk in bound.astream(question, None if shown else {"tags": [TAG_NOSTREAM]}):
            counted = chunk.usage_metadata or counted
            metadata |= {key: one for key, one in chunk.response_metadata.items() if one}
            answer = chunk if answer is None else answer + chunk
            if heard is not None:
                heard.append(str(chunk.content))
    except ValueError as error:  # a chunk that is no JSON, or none at all
        raise StackFailed(code="model_error", blame="world", detail=str(error)) from error
    # Where the tokens so far come with each chunk, LangChain adds them up; finish reasons, too.
    finish = metadata.get("finish_reason", "")
    if answer is not None and not finish:
        raise StackFailed(code="model_truncated", blame="world")
    words = answer and (
        answer.content or answer.tool_call_chunks or answer.additional_kwargs.get(REASONING_TEXT)
    )
    if answer is None or not (words or finish in WORDLESS_REASONS):
        raise StackFailed(code="model_empty", blame="world")
    pieces = sorted(answer.tool_call_chunks, key=lambda one: one["index"] or 0)
    if pieces and finish != "tool_calls":
        log.warning("calls=%d not run finish=%s", len(pieces), finish)
    calls = [
        {"id": piece["id"] or "", "name": piece["name"] or "", "arguments": piece["args"] or ""}
        for piece in pieces
    ]
    return AIMessage(
        answer.content,
        id=answer.id,
        additional_kwargs={**answer.additional_kwargs, CALLS: calls},
        response_metadata=metadata,
        usage_metadata=counted,
        tool_calls=[call for call in map(tool_call, calls) if call is not None],
    )


def calls_to_run(answer: AIMessage, *, last: bool) -> list[dict[str, str]]:
    """Return the calls of an answer that run: in the last round, and of one cut short, none."""
    calls: list[dict[str, str]] = answer.additional_kwargs[CALLS]
    finish = answer.response_metadata["finish_reason"]
    return calls if not last and runs_tools(finish, len(calls)) else []


def tool_call(call: dict[str, str]) -> ToolCall | None:
    """Return a call of an answer as LangChain takes it; None where its arguments are no object."""
    try:
        args = json.loads(call["arguments"] or "{}")
    except ValueError:
        return None
    if not isinstance(args, dict):
        return None
    return ToolCall(name=call["name"], args=args, id=call["id"], type="tool_call")


def usage(messages: Iterable[BaseMessage]) -> dict[str, int]:
    """Return the tokens of all answers among messages."""
    counted = [one.usage_metadata for one in messages if isinstance(one, AIMessage)]
    found = [one for one in counted if one]
    return {
        "prompt_tokens": sum(one["input_tokens"] for one in found),
        "completion_tokens": sum(one["output_tokens"] for one in found),
        "total_tokens": sum(one["total_tokens"] for one in found),
    }
