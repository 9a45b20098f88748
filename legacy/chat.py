"""Flow `chat`, the old way: one generator, explicit loops, a Jinja2 prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from msgspec import UNSET, UnsetType

from contract.errors import EffectFailed
from contract.flow import Flow, Request
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
    failed,
)
from contract.model import Chunk, ToolCall, ToolResult
from contract.ports import Effects
from legacy import rounds
from legacy.templates import FOLDER, read_prompt
from rules import chat as rules
from rules.conversation import ModelAnswer, question, store_reply, tool_answer, tool_round

DIAGRAM = """graph TD;
	__start__ --> initialize;
	initialize --> prompt_generation;
	prompt_generation --> model_call;
	model_call -.-> tool_execution;
	tool_execution --> model_call;
	model_call -.-> output_processing;
	output_processing --> cleanup;
	cleanup --> __end__;
"""


class Output:
    """The reply in progress: what the client has, and what is still to be sent.

    `at` is the stamp of the newest item.
    """

    def __init__(self, options: ChatOptions) -> None:
        self.content = ""
        self.reasoning = ""
        self.at = 0
        self._shows_reasoning = options.wire == "extended"
        self._interval = round(options.yield_interval * 1_000_000)
        self._sent_content = ""
        self._sent_reasoning = ""
        self._last: Send | None = None
        self._last_at: int | None = None

    def take(self, chunk: Chunk) -> Iterator[Send]:
        """Add a chunk; send when it brings the first text or the interval has passed."""
        self.at = chunk.at
        self.content += chunk.text
        if self._shows_reasoning:
            self.reasoning += chunk.reasoning
        first_text = self.content and not self._sent_content
        first_reasoning = self.reasoning and not self._sent_reasoning
        waited = self._last_at is None or self.at - self._last_at >= self._interval
        if waited or first_text or first_reasoning:
            yield from self.flush()

    def flush(self) -> Iterator[Send]:
        """Send what the client lacks."""
        if self.content != self._sent_content or self.reasoning != self._sent_reasoning:
            yield from self._send()

    def feedback(self, call: ToolCall, result: ToolResult | None = None) -> Iterator[Send]:
        """Send a tool's status at once, unsent text before it."""
        yield from self.flush()
        yield from self._send(rules.tool_feedback(call, result))

    def _send(self, status: ToolFeedback | UnsetType = UNSET) -> Iterator[Send]:
        self._sent_content, self._sent_reasoning = self.content, self.reasoning
        frame = Send(self.content, self.reasoning if self._shows_reasoning else UNSET, status)
        if frame != self._last:
            self._last, self._last_at = frame, self.at
            yield frame


def chat(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    render = read_prompt("chat_system.j2", prompts, rules.DEFAULT_SYSTEM_PROMPT)

    async def flow(
        request: Request[ChatRequest, ChatOptions], effects: Effects
    ) -> AsyncIterator[ChatEvent]:
        model = rules.settings(request.body, request.options)
        output, node = Output(request.options), effects.trace.node
        answer = ModelAnswer()
        with node("initialize"):
            turn = await rules.admit(request, model, effects)
            yield Accept()
            yield StartReply()
        try:
            with node("prompt_generation"):
                messages, tools = await rules.lay_out(request, model, effects, turn, render)
            for round_number in range(model.max_tool_iterations + 1):
                with node("model_call"):
                    last = round_number >= model.max_tool_iterations
                    call, answer = question(model, messages, tools, last=last), ModelAnswer()
                    async for chunk in effects.model.stream("reply", call):
                        answer.add(chunk)
                        for frame in output.take(chunk):
                            yield frame
                    calls = answer.calls(call)
                    if not calls:
                        break
                    messages += (tool_round(answer.text, calls),)
                with node("tool_execution"):
                    for one in calls:
                        for frame in output.feedback(one):
                            yield frame
                    async with rounds.started_tools(effects, calls) as running:
                        for one, task in zip(calls, running, strict=True):
                            result = await task
                            messages += (tool_answer(one, result),)
                            output.at = max(output.at, result.at)
                            for frame in output.feedback(one, result):
                                yield frame
            with node("output_processing"):
                output.content += rules.ending_notice(answer.finish, request.options.texts)
                for frame in output.flush():
                    yield frame
                await store_reply(effects, turn, output.content)
            with node("cleanup"):
                await effects.locks.release("message", rules.lock_key(turn.message_id))
                yield Success(output.content)
                yield End()
        except EffectFailed as failure:
            with node("output_processing"):
                for frame in output.flush():
                    yield frame
            with node("cleanup"):
                yield failed(request.options, failure.fault.code)
                yield End()

    return flow
