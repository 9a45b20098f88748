"""Flow `companion`, the old way: one generator a way in, explicit loops, Jinja2 prompts."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING

from contract.errors import EffectFailed
from contract.flows.companion import CompanionDone, CompanionEvent, ImageTurn, failed
from legacy.pictures import look
from legacy.rounds import started
from legacy.templates import FOLDER
from legacy.visit import Prompts, Visit
from rules import companion as rules
from rules import questions
from rules.answers import ModelAnswer
from rules.conversation import window
from rules.emotion import feel
from rules.images import picture
from rules.model_calls import prompt_messages, question, tool_answer, tool_round

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

    from contract.flow import Flow
    from contract.flows.companion import Emotion
    from contract.model import Message, ModelCall, ToolCall, ToolResult, ToolSpec
    from contract.ports import Effects
    from contract.stores import Turn
    from rules.companion import Asked

    Events = AsyncGenerator[CompanionEvent]

log = logging.getLogger(__name__)


class Talk:
    """The rounds of model and tools of a turn."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.messages: tuple[Message, ...] = ()
        self.calls: tuple[ToolCall, ...] = ()
        self.round = questions.Round((), ())
        self._results: dict[str, ToolResult] = {}

    async def reason(self, call: ModelCall) -> Events:
        """Ask the model once; afterwards `calls` are the tools it wants."""
        answer = ModelAnswer()
        async for chunk in self.visit.effects.model.stream("reasoning", call):
            if text := answer.add(chunk):
                yield self.visit.say(text)
        self.calls = answer.calls(call)
        if self.calls:
            self.messages += (tool_round(answer.text, self.calls),)

    async def use_tools(self) -> Events:
        """Run the round's calls side by side; show them in index order."""
        self.round = questions.sort_out(self.calls, asking=self.visit.options.ask_human)
        self._results = dict(self.round.refused)
        async with started(self.visit.effects, self.round.runs) as running:
            tasks = {one.id: task for one, task in zip(self.round.runs, running, strict=True)}
            for call in self.round.before:
                if call.id in tasks:
                    self._results[call.id] = await tasks[call.id]
                yield rules.shown(call, self._results[call.id])

    async def ask(self, question: questions.FormCall) -> Events:
        """Ask the user what the round's question says, once its other calls are over."""
        call, form = question.call, question.form
        try:
            hitl_id = await self.visit.put(form, rules.QUESTION)
        except EffectFailed as failure:
            log.warning("the user is not asked: %s", failure.fault.code)
            result = questions.NOT_ASKED
        else:
            yield rules.hitl(self.visit.asked, hitl_id, form, rules.QUESTION)
            result = questions.answered(form, await self.visit.answer(hitl_id))
        self._results[call.id] = result
        yield rules.shown(call, result)

    def tell(self) -> None:
        """Tell the model what came of the round."""
        self.messages += tuple(tool_answer(call, self._results[call.id]) for call in self.calls)


def companion(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    rendered = Prompts.of(prompts)

    async def flow(asked: Asked, effects: Effects) -> AsyncIterator[CompanionEvent]:
        visit = Visit(asked, effects, rendered)
        with effects.trace.node("prepare"):
            seen = picture(asked.body.image) if isinstance(asked.body, ImageTurn) else None
            turn = await visit.admit()
        try:
            async with aclosing(
                _talk(visit, turn) if seen is None else look(visit, seen)
            ) as events:
                async for event in events:
                    yield event
            await visit.keep(turn)
        except EffectFailed as failure:
            for event in failed(failure.fault.code):
                yield event
            return
        yield CompanionDone("completed")

    return flow


async def _talk(visit: Visit, turn: Turn) -> Events:
    with visit.effects.trace.node("emotion"):
        mood = feel(visit.asked.body.message)
    yield mood
    talk = Talk(visit)
    tools = await _lay_out(talk, turn, mood)
    for number in range(visit.options.max_tool_iterations + 1):
        last = number >= visit.options.max_tool_iterations
        call = question(visit.options, talk.messages, tools, last=last)
        with visit.effects.trace.node("reasoning"):
            async with aclosing(talk.reason(call)) as events:
                async for event in events:
                    yield event
        if not talk.calls:
            return
        async with aclosing(_round(talk)) as events:
            async for event in events:
                yield event


async def _lay_out(talk: Talk, turn: Turn, mood: Emotion) -> tuple[ToolSpec, ...]:
    """Lay out the conversation; gives the tools the model is offered."""
    visit, options = talk.visit, talk.visit.options
    with visit.effects.trace.node("recall"):
        memories = await _memories(visit)
    now = await visit.effects.clock.now("prompt")
    system = visit.prompts.system(rules.prompt(now, visit.asked, mood, memories, visit.earlier))
    talk.messages = prompt_messages(system, window(visit.earlier, options.history_tokens), turn)
    offered = await visit.effects.tools.list("offer") if options.enable_tools else ()
    return questions.offer(offered, asking=options.ask_human)


async def _round(talk: Talk) -> Events:
    trace = talk.visit.effects.trace
    with trace.node("tools"):
        async with aclosing(talk.use_tools()) as events:
            async for event in events:
                yield event
    if talk.round.question is not None:
        with trace.node("ask"):
            async with aclosing(talk.ask(talk.round.question)) as events:
                async for event in events:
                    yield event
    talk.tell()


async def _memories(visit: Visit) -> str:
    """Recall; a memory that fails is a memory of nothing."""
    wanted = rules.recall(visit.asked)
    if wanted is None:
        return rules.told(())
    try:
        return rules.told(await visit.effects.memory.recall("recall", wanted))
    except EffectFailed as failure:
        log.warning("nothing is recalled: %s", failure.fault.code)
        return rules.told(())
