"""Flow `chat`, the old way: one generator, explicit loops, a Jinja2 prompt."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from contract.errors import EffectFailed
from contract.flows.chat import (
    Accept,
    ChatEvent,
    ChatOptions,
    ChatRequest,
    End,
    Send,
    StartReply,
    Success,
    ToolFeedback,
    ToolStatus,
    failed,
)
from legacy.rounds import check_model, started
from legacy.templates import FOLDER, system_prompt
from rules import chat as rules
from rules.answers import ModelAnswer
from rules.conversation import reply_turn, window
from rules.model_calls import prompt_messages, question, tool_answer, tool_round
from rules.prompts import ending_notice, parameters

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator
    from pathlib import Path

    from contract.flow import Flow, Request
    from contract.model import Chunk, Message, ToolCall, ToolResult, ToolSpec
    from contract.ports import Effects
    from contract.stores import Turn
    from legacy.templates import Render


class Output:
    """What the client has been sent, and what is still to be sent."""

    def __init__(self, options: ChatOptions) -> None:
        self.content = ""
        self.reasoning = ""
        self._shows_reasoning = options.wire == "extended"
        self._interval = round(options.yield_interval * 1_000_000)
        self._sent_content = ""
        self._sent_reasoning = ""
        self._last: Send | None = None
        self._last_at: int | None = None

    def chunk(self, chunk: Chunk) -> Iterator[Send]:
        """Take a chunk in; send when the first text came or the interval has passed."""
        self.content += chunk.text
        if self._shows_reasoning:
            self.reasoning += chunk.reasoning
        if self._due(chunk.at):
            yield from self.flush(chunk.at)

    def flush(self, at: int) -> Iterator[Send]:
        """Send what has not been sent."""
        if self.content != self._sent_content or self.reasoning != self._sent_reasoning:
            yield from self._send(self._frame(), at)

    def feedback(self, tool: ToolCall, result: ToolResult | None, at: int) -> Iterator[Send]:
        """Send how a tool is doing, at once."""
        yield from self.flush(at)
        news = ToolFeedback(tool.name, _status(result))
        yield from self._send(self._frame(news), at)

    def _due(self, at: int) -> bool:
        if self._last_at is None or at - self._last_at >= self._interval:
            return True
        first_text = bool(self.content) and not self._sent_content
        first_reasoning = bool(self.reasoning) and not self._sent_reasoning
        return first_text or first_reasoning

    def _frame(self, news: ToolFeedback | UnsetType = UNSET) -> Send:
        return Send(self.content, self.reasoning if self._shows_reasoning else UNSET, news)

    def _send(self, frame: Send, at: int) -> Iterator[Send]:
        self._sent_content, self._sent_reasoning = self.content, self.reasoning
        if frame != self._last:
            self._last, self._last_at = frame, at
            yield frame


def _status(result: ToolResult | None) -> ToolStatus:
    if result is None:
        return "running"
    return "done" if result.ok else "error"


class Reply:
    """One reply in the making."""

    def __init__(self, request: Request[ChatRequest, ChatOptions], effects: Effects) -> None:
        self.options = request.options
        self.body = request.body
        self.effects = effects
        self.model = rules.settings(request.body, request.options)
        self.output = Output(request.options)
        self.messages: tuple[Message, ...] = ()
        self.calls: tuple[ToolCall, ...] = ()
        self.finish = ""
        self.text = ""
        self.at = 0

    async def admit(self) -> Turn:
        """Check model, lock and message; raises `Refused`."""
        await check_model(self.effects, self.model.model_id, self.model.max_tokens)
        key = rules.lock_key(self.body.message_id)
        if not await self.effects.locks.acquire("message", key, self.options.lock_ttl):
            raise rules.message_locked()
        return await self._message()

    async def _message(self) -> Turn:
        if self.body.content is not None:
            turn = rules.sent(self.body, self.body.content)
            if not await self.effects.conversations.put("message", turn):
                raise rules.message_conflict()
            return turn
        found = await self.effects.conversations.find("message", self.body.message_id)
        if found is None:
            raise rules.unknown_message()
        return found

    async def earlier(self, turn: Turn) -> tuple[Turn, ...]:
        """Read the earlier turns of the same chat, within the token budget."""
        if turn.chat_id is None or self.options.history_limit == 0:
            return ()
        turns = await self.effects.conversations.history(
            "history", turn.chat_id, before=turn.message_id, limit=self.options.history_limit
        )
        return window(turns, self.options.history_tokens)

    async def tools(self) -> tuple[ToolSpec, ...]:
        """Tell which tools the model is offered."""
        return await self.effects.tools.list("offer") if self.model.enable_tools else ()

    async def ask(self, round_number: int, tools: tuple[ToolSpec, ...]) -> AsyncGenerator[Send]:
        """Ask the model once; afterwards `finish`, `text` and `calls` say what it answered."""
        last = round_number >= self.model.max_tool_iterations
        call = question(self.model, self.messages, tools, last=last)
        answer = ModelAnswer()
        async for chunk in self.effects.model.stream("reply", call):
            self.at = chunk.at
            answer.add(chunk)
            for frame in self.output.chunk(chunk):
                yield frame
        self.finish, self.text, self.calls = answer.finish, answer.text, answer.calls(call)

    async def use_tools(self) -> AsyncGenerator[Send]:
        """Run the round's calls side by side; show and remember them in index order."""
        self.messages += (tool_round(self.text, self.calls),)
        for call in self.calls:
            for frame in self.output.feedback(call, None, self.at):
                yield frame
        async with started(self.effects, self.calls) as running:
            for call, task in zip(self.calls, running, strict=True):
                result = await task
                self.at = max(self.at, result.at)
                self.messages += (tool_answer(call, result),)
                for frame in self.output.feedback(call, result, self.at):
                    yield frame

    async def keep(self, turn: Turn) -> None:
        """Store the finished reply and say that the lock is no longer needed."""
        reply_id = await self.effects.ids.new("reply")
        await self.effects.conversations.put(
            "reply", reply_turn(reply_id, turn, self.output.content)
        )
        await self.effects.locks.release("message", rules.lock_key(turn.message_id))


def chat(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    render = system_prompt("chat_system.j2", prompts)

    async def flow(
        request: Request[ChatRequest, ChatOptions], effects: Effects
    ) -> AsyncIterator[ChatEvent]:
        reply = Reply(request, effects)
        with effects.trace.node("prepare"):
            turn = await reply.admit()
        yield Accept()
        yield StartReply()
        try:
            async with aclosing(_answer(reply, turn, render)) as frames:
                async for frame in frames:
                    yield frame
        except EffectFailed as failure:
            for frame in reply.output.flush(reply.at):
                yield frame
            yield failed(request.options, failure.fault.code)
        yield End()

    return flow


async def _answer(reply: Reply, turn: Turn, render: Render) -> AsyncGenerator[ChatEvent]:
    now = await reply.effects.clock.now("prompt")
    system = render(parameters(now, reply.options.timezone, reply.body.prompt_params))
    reply.messages = prompt_messages(system, await reply.earlier(turn), turn)
    tools = await reply.tools()
    for round_number in range(reply.model.max_tool_iterations + 1):
        with reply.effects.trace.node("model"):
            async with aclosing(reply.ask(round_number, tools)) as frames:
                async for frame in frames:
                    yield frame
        if not reply.calls:
            break
        with reply.effects.trace.node("tools"):
            async with aclosing(reply.use_tools()) as frames:
                async for frame in frames:
                    yield frame
    reply.output.content += ending_notice(reply.finish, reply.options.texts)
    for frame in reply.output.flush(reply.at):
        yield frame
    await reply.keep(turn)
    yield Success(reply.output.content)
