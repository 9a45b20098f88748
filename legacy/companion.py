"""Flow `companion`, the old way: one generator a way in, explicit loops, Jinja2 prompts."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING

from contract.companion import CompanionEvent, Done, ImageTurn, failed
from contract.errors import EffectFailed
from legacy.pictures import look
from legacy.prompting import FOLDER
from legacy.tool_runs import started
from legacy.visit import Prompts, Visit
from rules import asking
from rules import companion as rules
from rules.emotion import feel
from rules.history import window
from rules.images import picture
from rules.messages import conversation, tool_answer, tool_round
from rules.tool_calls import EARLY_ENDINGS, ToolCallAssembly

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

    from contract.conversations import Turn
    from contract.flow import Flow
    from contract.model import Message, ModelCall
    from contract.ports import Effects
    from contract.tools import ToolCall, ToolResult
    from rules.companion import Asked

    Events = AsyncGenerator[CompanionEvent]

log = logging.getLogger(__name__)


class Talk:
    """The rounds of model and tools of a turn."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.messages: tuple[Message, ...] = ()
        self.calls: tuple[ToolCall, ...] = ()
        self._taken: set[str] = set()

    async def reason(self, call: ModelCall, number: int) -> Events:
        """Ask the model once; afterwards `calls` are the tools it wants."""
        assembly, finish, before = ToolCallAssembly(), "", len(self.visit.text)
        async for chunk in self.visit.effects.model.stream("reasoning", call):
            finish = chunk.finish or finish
            assembly.add(chunk.tool_calls)
            if chunk.text:
                yield self.visit.say(chunk.text)
        self.calls = ()
        if call.tool_choice == "auto" and finish not in EARLY_ENDINGS:
            self.calls = assembly.calls(number, self._taken)
            self._taken.update(one.id for one in self.calls)
        if self.calls:
            self.messages += (tool_round(self.visit.text[before:], self.calls),)

    async def use_tools(self) -> Events:
        """Run the round's calls side by side, show them in index order, then ask the user."""
        todo = asking.sort_out(self.calls, asking=self.visit.options.ask_human)
        results = dict(todo.refused)
        async with started(self.visit.effects, todo.runs) as running:
            tasks = {one.id: task for one, task in zip(todo.runs, running, strict=True)}
            for call in todo.before:
                if call.id in tasks:
                    results[call.id] = await tasks[call.id]
                yield rules.shown(call, results[call.id])
        if todo.question is not None:
            async with aclosing(self._ask(todo.question, results)) as events:
                async for event in events:
                    yield event
        self.messages += tuple(tool_answer(call, results[call.id]) for call in self.calls)

    async def _ask(self, question: asking.Question, results: dict[str, ToolResult]) -> Events:
        call, form = question.call, question.form
        try:
            hitl_id = await self.visit.put(form, rules.QUESTION)
        except EffectFailed as failure:
            log.warning("the user is not asked: %s", failure.fault.code)
            results[call.id] = asking.NOT_ASKED
        else:
            yield rules.hitl(self.visit.asked, hitl_id, form, rules.QUESTION)
            results[call.id] = asking.answered(form, await self.visit.answer(hitl_id))
        yield rules.shown(call, results[call.id])


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
        yield Done("completed")

    return flow


async def _talk(visit: Visit, turn: Turn) -> Events:
    effects, options = visit.effects, visit.options
    with effects.trace.node("emotion"):
        mood = feel(visit.asked.body.message)
    yield mood
    with effects.trace.node("recall"):
        memories = await _memories(visit)
    now = await effects.clock.now("prompt")
    system = visit.prompts.system(rules.prompt(now, visit.asked, mood, memories, visit.earlier))
    offered = await effects.tools.list("offer") if options.enable_tools else ()
    tools = asking.offer(offered, asking=options.ask_human)
    talk = Talk(visit)
    talk.messages = conversation(system, window(visit.earlier, options.history_tokens), turn)
    for number in range(options.max_tool_iterations + 1):
        last = number >= options.max_tool_iterations
        call = rules.question(options, talk.messages, tools, last=last)
        with effects.trace.node("reasoning"):
            async with aclosing(talk.reason(call, number)) as events:
                async for event in events:
                    yield event
        if not talk.calls:
            return
        with effects.trace.node("tools"):
            async with aclosing(talk.use_tools()) as events:
                async for event in events:
                    yield event


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
