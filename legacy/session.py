"""Flow `session`, the old way: recall, ask, keep, and learn once the answer is out."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING

from contract.errors import EffectFailed
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
from contract.model import Usage
from legacy.rounds import check_model, started
from legacy.templates import FOLDER, system_prompt
from rules import session as rules
from rules.answers import ModelAnswer
from rules.conversation import reply_turn, session_busy, window
from rules.memories import entries, worth
from rules.model_calls import prompt_messages, question, tool_answer, tool_round
from rules.prompts import SESSION_PROMPT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

    from contract.flow import Flow
    from contract.model import Message, ModelCall, ToolCall, ToolSpec
    from contract.ports import Effects
    from contract.stores import Turn
    from legacy.templates import Render
    from rules.session import SessionAsked

log = logging.getLogger(__name__)


class Talk:
    """One turn of a session."""

    def __init__(self, asked: SessionAsked, effects: Effects) -> None:
        self.asked = asked
        self.options = asked.options
        self.effects = effects
        self.session = rules.session_of(asked)
        self.new = False
        self.earlier: tuple[Turn, ...] = ()
        self.messages: tuple[Message, ...] = ()
        self.calls: tuple[ToolCall, ...] = ()
        self.text = ""
        self.usage = Usage()

    async def admit(self) -> Turn:
        """Check model, lock and session, and store what was said; raises `Refused`."""
        options, ttl = self.options, self.options.lock_ttl
        await check_model(self.effects, options.model_id, options.max_tokens)
        if not await self.effects.locks.acquire("session", lock_key(self.session), ttl):
            raise session_busy()
        message_id = await self.effects.ids.new("message")
        self.earlier = await self.effects.conversations.history(
            "history", self.session, before=message_id, limit=self.options.history_limit
        )
        self.new = rules.check_known(self.asked, self.earlier)
        turn = rules.sent(self.asked, message_id)
        await self.effects.conversations.put("message", turn)
        return turn

    async def memories(self) -> str:
        """Recall; a memory that fails is a memory of nothing."""
        wanted = rules.recall(self.asked, new=self.new)
        if wanted is None:
            return ""
        try:
            return rules.told(await self.effects.memory.recall("recall", wanted))
        except EffectFailed as failure:
            log.warning("nothing is recalled: %s", failure.fault.code)
            return ""

    async def answer(self, tools: tuple[ToolSpec, ...]) -> AsyncGenerator[SessionText]:
        """Ask the model, round by round, until it calls no more tools."""
        for number in range(self.options.max_tool_iterations + 1):
            last = number >= self.options.max_tool_iterations
            call = question(self.options, self.messages, tools, last=last)
            with self.effects.trace.node("process"):
                async with aclosing(self._ask(call)) as pieces:
                    async for piece in pieces:
                        yield piece
            if not self.calls:
                return
            with self.effects.trace.node("tools"):
                await self._use_tools()

    async def _ask(self, call: ModelCall) -> AsyncGenerator[SessionText]:
        answer = ModelAnswer()
        async for chunk in self.effects.model.stream("reply", call):
            if text := answer.add(chunk):
                self.text += text
                yield SessionText(TextData(text))
        self.usage += answer.usage
        self.calls = answer.calls(call)
        if self.calls:
            self.messages += (tool_round(answer.text, self.calls),)

    async def _use_tools(self) -> None:
        async with started(self.effects, self.calls) as running:
            for call, task in zip(self.calls, running, strict=True):
                self.messages += (tool_answer(call, await task),)

    async def keep(self, turn: Turn) -> Turn:
        """Store the answer and say that the session is free again."""
        kept = reply_turn(await self.effects.ids.new("reply"), turn, self.text)
        await self.effects.conversations.put("reply", kept)
        await self.effects.locks.release("session", lock_key(self.session))
        return kept


def session(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    render = system_prompt("session_system.j2", prompts, SESSION_PROMPT)

    async def flow(asked: SessionAsked, effects: Effects) -> AsyncIterator[SessionEvent]:
        talk = Talk(asked, effects)
        with effects.trace.node("prepare"):
            turn = await talk.admit()
        if talk.new:
            yield SessionCreated(SessionData(talk.session))
        yield Thinking()
        try:
            async with aclosing(_answer(talk, turn, render)) as pieces:
                async for piece in pieces:
                    yield piece
            kept = await talk.keep(turn)
        except EffectFailed as failure:
            yield failed(failure.fault.code)
            return
        yield rules.done(kept, talk.usage)
        with effects.trace.node("extract"):
            await _learn(talk, (*talk.earlier, turn, kept))

    return flow


async def _answer(talk: Talk, turn: Turn, render: Render) -> AsyncGenerator[SessionText]:
    with talk.effects.trace.node("recall"):
        memories = await talk.memories()
    system = render({"system_prompt": talk.options.system_prompt, "memories": memories})
    history = window(talk.earlier, talk.options.history_tokens)
    talk.messages = prompt_messages(system, history, turn)
    tools = await talk.effects.tools.list("offer") if talk.options.enable_tools else ()
    async with aclosing(talk.answer(tools)) as pieces:
        async for piece in pieces:
            yield piece


async def _learn(talk: Talk, turns: tuple[Turn, ...]) -> None:
    """Draw facts from the conversation and remember them; what fails is not learnt.

    Nor is what comes too late: of a session that was deleted meanwhile nothing is to be left.
    """
    call = rules.extraction(talk.asked, turns)
    if call is None or talk.asked.body.user_id is None:
        return
    answer = ""
    try:
        async for chunk in talk.effects.model.stream("extract", call):
            answer += chunk.text
        found = worth(answer, talk.options.least_confidence)
        last = turns[-1].message_id
        if found and await talk.effects.conversations.find("learn", last):
            ids = [await talk.effects.ids.new("memory") for _ in found]
            learnt = entries(found, ids, talk.asked.body.user_id, talk.session)
            await talk.effects.memory.write("learn", learnt)
    except EffectFailed as failure:
        log.warning("nothing is learnt: %s", failure.fault.code)
