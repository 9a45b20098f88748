"""One reply of the baseline: request, prompt, model, tools, throttled frames."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import uuid4

import openai
from jinja2 import Template
from openai import AsyncOpenAI
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from benchmarks.plain import tools
from benchmarks.plain.store import ChatTurn, Turns

YIELD_SECONDS = 0.5
HISTORY = 20
NOTICES = {"content_filter": "赤尾有点不想讨论这个话题呢~", "length": "(后续内容被截断)"}


Identifier = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=65_536)]


class ReplySettings(BaseModel):
    """What a request may set of the model."""

    model_config = ConfigDict(frozen=True)

    model_id: Identifier = "gpt-4.1"
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.7
    max_tokens: Annotated[int, Field(ge=1, le=65_536)] | None = None
    enable_tools: bool = True
    max_tool_iterations: Annotated[int, Field(ge=0, le=50)] = 10


class ChatBody(BaseModel):
    """Body of `POST /chat/sse`."""

    model_config = ConfigDict(frozen=True)

    message_id: Identifier
    content: Text | None = None
    user_name: Name | None = None
    chat_id: Identifier | None = None
    user_id: Identifier | None = None
    # pydantic keeps the field's own name for itself.
    settings: ReplySettings = Field(default=ReplySettings(), alias="model_config")
    prompt_params: dict[str, str | int | float | None] = {}


def frame(**event: Any) -> str:
    """Put an event into its frame."""
    return f"data: {json.dumps(event, ensure_ascii=False, separators=(',', ':'))}\n\n"


@dataclass(slots=True)
class Throttle:
    """Sends the first text at once, then every half second, and never the same twice."""

    content: str = ""
    sent: str = ""
    sent_at: float | None = None
    last: str = ""

    def add(self, text: str) -> str | None:
        """Take text in; gives the frame that is due."""
        self.content += text
        now = time.monotonic()
        if not self.sent or self.sent_at is None or now - self.sent_at >= YIELD_SECONDS:
            return self.flush()
        return None

    def flush(self) -> str | None:
        """Return the frame with what has not been sent, if anything has not."""
        if self.content == self.sent:
            return None
        return self._send(frame(step="SEND", content=self.content))

    def feedback(self, tool: str, status: str) -> str | None:
        """Return the frame with a tool's status, unless it was the last one sent."""
        news = {"tool": tool, "status": status}
        return self._send(frame(step="SEND", content=self.content, tool_call_feedback=news))

    def _send(self, one: str) -> str | None:
        self.sent = self.content
        if one == self.last:
            return None
        self.last, self.sent_at = one, time.monotonic()
        return one


@dataclass(slots=True)
class ChatReply:
    """One reply in the making."""

    body: ChatBody
    turn: ChatTurn
    client: AsyncOpenAI
    model: str
    turns: Turns
    prompt: Template
    throttle: Throttle = field(default_factory=Throttle)
    finish: str = ""
    calls: dict[int, dict[str, str]] = field(default_factory=dict)

    async def frames(self) -> AsyncIterator[str]:
        """Yield the whole stream."""
        yield frame(step="ACCEPT")
        yield frame(step="START_REPLY")
        try:
            async for one in self._answer():
                yield one
            await self.turns.put(self._reply())
            yield frame(step="SUCCESS", content=self.throttle.content)
        except (openai.OpenAIError, OSError):
            if left := self.throttle.flush():
                yield left
            yield frame(step="FAILED")
        yield frame(step="END")

    async def _answer(self) -> AsyncIterator[str]:
        messages = await self._messages()
        for round_number in range(self.body.settings.max_tool_iterations + 1):
            async for one in self._ask(messages, round_number):
                yield one
            if not self.calls:
                break
            async for one in self._use_tools(messages):
                yield one
        self.throttle.content += NOTICES.get(self.finish, "")
        if left := self.throttle.flush():
            yield left

    async def _messages(self) -> list[Any]:
        now = datetime.now(UTC)
        parameters = {"current_date": f"{now:%Y-%m-%d}", "current_time": f"{now:%H:%M:%S}"}
        system = self.prompt.render(parameters | self.body.prompt_params)
        earlier: list[ChatTurn] = []
        if self.turn.chat_id is not None:
            earlier = await self.turns.history(self.turn.chat_id, self.turn.message_id, HISTORY)
        return [{"role": "system", "content": system}, *map(_message, [*earlier, self.turn])]

    async def _ask(self, messages: list[Any], round_number: int) -> AsyncIterator[str]:
        settings = self.body.settings
        options: dict[str, Any] = {}
        if settings.enable_tools:
            last = round_number >= settings.max_tool_iterations
            options = {"tools": tools.OFFERS, "tool_choice": "none" if last else "auto"}
        if settings.max_tokens is not None:
            options["max_tokens"] = settings.max_tokens
        stream = await self.client.chat.completions.create(
            model=self.model,
            messages=messages,
            temperature=settings.temperature,
            stream=True,
            stream_options={"include_usage": True},
            **options,
        )
        before = len(self.throttle.content)
        self.calls = {}
        async for chunk in stream:
            if not chunk.choices:
                continue
            choice = chunk.choices[0]
            self.finish = choice.finish_reason or self.finish
            self._collect(choice.delta.tool_calls or [])
            if choice.delta.content and (due := self.throttle.add(choice.delta.content)):
                yield due
        if self.calls:
            messages.append(self._round(self.throttle.content[before:]))

    def _collect(self, deltas: list[ChoiceDeltaToolCall]) -> None:
        for delta in deltas:
            call = self.calls.setdefault(delta.index, {"id": "", "name": "", "arguments": ""})
            call["id"] = call["id"] or delta.id or ""
            if delta.function is not None:
                call["name"] += delta.function.name or ""
                call["arguments"] += delta.function.arguments or ""

    def _round(self, text: str) -> dict[str, Any]:
        called = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for _, call in sorted(self.calls.items())
        ]
        return {"role": "assistant", "content": text or None, "tool_calls": called}

    async def _use_tools(self, messages: list[Any]) -> AsyncIterator[str]:
        calls = [call for _, call in sorted(self.calls.items())]
        if left := self.throttle.flush():
            yield left
        for call in calls:
            if news := self.throttle.feedback(call["name"], "running"):
                yield news
        results = [asyncio.ensure_future(tools.run(c["name"], c["arguments"])) for c in calls]
        for call, result in zip(calls, results, strict=True):
            content, went_well = await result
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
            if news := self.throttle.feedback(call["name"], "done" if went_well else "error"):
                yield news

    def _reply(self) -> ChatTurn:
        turn = self.turn
        content = self.throttle.content
        return ChatTurn(
            uuid4().hex, "assistant", content, turn.chat_id, turn.user_id, None, turn.message_id
        )


def _message(turn: ChatTurn) -> dict[str, str]:
    if turn.role == "user" and turn.user_name:
        return {"role": "user", "content": f"[{turn.user_name}]: {turn.content}"}
    return {"role": turn.role, "content": turn.content}
