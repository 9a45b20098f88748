"""Flow `session`, the old way: recall, ask, store, and learn once the answer is out."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

from contract.errors import EffectFailed
from contract.flow import Flow
from contract.flows.session import (
    SessionCreated,
    SessionData,
    SessionEvent,
    SessionText,
    TextData,
    Thinking,
    failed,
    lock_key,
)
from contract.model import Message, ModelCall, ToolSpec, Usage
from contract.ports import Effects
from contract.stores import Turn
from legacy import rounds
from legacy.templates import FOLDER, Render, system_prompt
from rules import session as rules
from rules.answers import ModelAnswer
from rules.conversation import store_reply, window
from rules.model_calls import prompt_messages, question, tool_answer, tool_round
from rules.prompts import SESSION_PROMPT
from rules.session import SessionTurnRequest

log = logging.getLogger(__name__)

DIAGRAM = """graph TD;
	__start__ --> recall_memory;
	recall_memory --> process;
	process -.-> tools;
	tools --> process;
	process -.-> extract_memory;
	extract_memory --> __end__;
"""


class SessionTurn:
    """One turn of a session."""

    def __init__(self, request: SessionTurnRequest, effects: Effects) -> None:
        self.request = request
        self.options = request.options
        self.effects = effects
        self.session = rules.session_of(request)
        self.new = False
        self.earlier: tuple[Turn, ...] = ()
        self.messages: tuple[Message, ...] = ()
        self.tools: tuple[ToolSpec, ...] = ()

    async def lay_out(self, turn: Turn, render: Render, memories: str) -> None:
        """Lay out the conversation, and list the tools to offer."""
        system = render({"system_prompt": self.options.system_prompt, "memories": memories})
        history = window(self.earlier, self.options.history_tokens)
        self.messages = prompt_messages(system, history, turn)
        if self.options.enable_tools:
            self.tools = await self.effects.tools.list("offer")

    def call(self, round_number: int) -> ModelCall:
        """Build the call of the model that opens a round."""
        last = round_number >= self.options.max_tool_iterations
        return question(self.options, self.messages, self.tools, last=last)

    async def store(self, turn: Turn, text: str) -> Turn:
        """Store the answer and release the session."""
        reply = await store_reply(self.effects, turn, text)
        await self.effects.locks.release("session", lock_key(self.session))
        return reply


def session(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    render = system_prompt("session_system.j2", prompts, SESSION_PROMPT)

    async def flow(request: SessionTurnRequest, effects: Effects) -> AsyncIterator[SessionEvent]:
        talk, node = SessionTurn(request, effects), effects.trace.node
        with node("admission"):
            turn, talk.earlier, talk.new = await rules.admit(request, effects)
        if talk.new:
            yield SessionCreated(SessionData(talk.session))
        yield Thinking()
        text, usage = "", Usage()
        try:
            with node("recall_memory"):
                found = await rounds.recalled(effects, rules.recall(request, new=talk.new))
            await talk.lay_out(turn, render, rules.memories_text(found))
            for round_number in range(request.options.max_tool_iterations + 1):
                with node("process"):
                    call, answer = talk.call(round_number), ModelAnswer()
                    async for chunk in effects.model.stream("reply", call):
                        if piece := answer.add(chunk):
                            yield SessionText(TextData(piece))
                text, usage = text + answer.text, usage + answer.usage
                calls = answer.calls(call)
                if not calls:
                    break
                with node("tools"):
                    talk.messages += (tool_round(answer.text, calls),)
                    async with rounds.started_tools(effects, calls) as running:
                        for tool, task in zip(calls, running, strict=True):
                            talk.messages += (tool_answer(tool, await task),)
            reply = await talk.store(turn, text)
        except EffectFailed as failure:
            yield failed(failure.fault.code)
            return
        yield rules.done(reply, usage)
        with node("extract_memory"):
            try:
                await rules.learn(request, effects, (*talk.earlier, turn), reply)
            except EffectFailed as failure:
                log.warning("nothing is learnt: %s", failure.fault.code)

    return flow
