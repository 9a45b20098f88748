"""Flow `companion`, the old way: a generator for messages, one for pictures, Jinja2 prompts."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path

from contract.errors import EffectFailed
from contract.flow import Flow
from contract.flows.companion import (
    CompanionDone,
    CompanionEvent,
    CompanionText,
    ImageTurn,
    failed,
)
from contract.model import Message, ToolResult, ToolSpec
from contract.ports import Effects
from contract.stores import Turn
from legacy import rounds
from legacy.templates import FOLDER, read_prompts
from rules import companion as rules
from rules import memories, questions
from rules.conversation import (
    ModelAnswer,
    end_session_turn,
    question,
    tool_answer,
    tool_round,
)
from rules.emotion import feel
from rules.images import Picture, picture
from rules.prompts import Render

log = logging.getLogger(__name__)

Events = AsyncGenerator[CompanionEvent]

MESSAGES = """graph TD;
	__start__ --> emotion;
	emotion --> memory;
	memory --> reasoning;
	reasoning -.-> tools;
	reasoning -.-> human;
	reasoning -.-> memory_extraction;
	reasoning -.-> __end__;
	tools -.-> reasoning;
	tools -.-> human;
	human --> reasoning;
	memory_extraction --> __end__;
"""
PICTURES = """graph TD;
	__start__ --> vision;
	vision -.-> memory_extraction;
	vision -.-> __end__;
	memory_extraction -.-> human;
	memory_extraction -.-> __end__;
	human --> __end__;
"""


class Reply:
    """The reply in progress, and what it is made with; `text` is what was sent of it so far.

    `turns` are those of the conversation, the one that is answered last.
    """

    def __init__(
        self,
        request: rules.CompanionRequest,
        effects: Effects,
        prompts: Mapping[str, Render],
        turns: tuple[Turn, ...],
    ) -> None:
        self.request = request
        self.effects = effects
        self.prompts = prompts
        self.turns = turns
        self.text = ""
        self.stored: Turn | None = None
        """The reply as it is stored, once it is whole."""

    def say(self, content: str) -> CompanionText:
        """Add a piece to the reply; returns its event."""
        self.text += content
        return CompanionText(content)

    async def finish(self) -> CompanionDone:
        """Store the whole reply and release the session; returns the event that ends the stream."""
        session, turn = self.request.body.session_id, self.turns[-1]
        self.stored = await end_session_turn(self.effects, session, turn, self.text)
        return CompanionDone("completed")


def companion(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    rendered = read_prompts("companion", prompts, rules.PROMPTS)

    async def flow(
        request: rules.CompanionRequest, effects: Effects
    ) -> AsyncIterator[CompanionEvent]:
        body = request.body
        with effects.trace.node("admission"):
            image = picture(body.image) if isinstance(body, ImageTurn) else None
            turn, earlier = await rules.admit(request, effects)
        reply = Reply(request, effects, rendered, (*earlier, turn))
        try:
            answered = _message(reply) if image is None else _picture(reply, image)
            async with aclosing(answered) as events:
                async for event in events:
                    yield event
        except EffectFailed as failure:
            for event in failed(failure.fault.code):
                yield event

    return flow


async def _message(reply: Reply) -> Events:
    """Answer a message: emotion, memories, then rounds of model and tools."""
    effects, options, node = reply.effects, reply.request.options, reply.effects.trace.node
    with node("emotion"):
        emotion = feel(reply.request.body.message)
        yield emotion
    with node("memory"):
        recollection = rules.memories_text(
            await rounds.recalled(effects, rules.recall(reply.request))
        )
    known, system = (emotion, recollection), reply.prompts["system"]
    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    for round_number in range(options.max_tool_iterations + 1):
        with node("reasoning"):
            if not messages:
                messages, tools = await rules.lay_out(
                    reply.request, effects, reply.turns, known, system
                )
            last = round_number >= options.max_tool_iterations
            call, answer = question(options, messages, tools, last=last), ModelAnswer()
            async for chunk in effects.model.stream("reasoning", call):
                if piece := answer.add(chunk):
                    yield reply.say(piece)
            todo = questions.sort_calls(answer.calls(call), asking=options.ask_human)
            if not todo.calls:
                yield await reply.finish()
                break
            messages += (tool_round(answer.text, todo.calls),)
        results = dict(todo.refused)
        if todo.before:
            with node("tools"):
                async with rounds.started_tools(effects, todo.runs) as running:
                    tasks = {one.id: task for one, task in zip(todo.runs, running, strict=True)}
                    for one in todo.before:
                        if one.id in tasks:
                            results[one.id] = await tasks[one.id]
                        yield rules.tool_output(one, results[one.id])
                if todo.question is None:
                    messages += _answers(todo, results)
        if todo.question is not None:
            with node("human"):
                async with aclosing(_ask(reply, todo.question, results)) as events:
                    async for event in events:
                        yield event
                messages += _answers(todo, results)
    if reply.stored is not None and options.extract_from:
        with node("memory_extraction"):
            await rounds.attempt_learning(
                rules.learn(reply.request, effects, reply.turns, reply.stored)
            )


def _answers(todo: questions.Round, results: Mapping[str, ToolResult]) -> tuple[Message, ...]:
    return tuple(tool_answer(one, results[one.id]) for one in todo.calls)


async def _ask(reply: Reply, opened: questions.FormCall, results: dict[str, ToolResult]) -> Events:
    """Ask the user a round's question, once its other calls have ended."""
    call, form, human = opened.call, opened.form, reply.effects.human
    try:
        opening = rules.open_question(reply.request, form, rules.QUESTION)
        hitl_id = await human.open("ask", opening)
    except EffectFailed as failure:
        log.warning("the user is not asked: %s", failure.fault.code)
        results[call.id] = questions.NOT_ASKED
    else:
        yield rules.hitl(reply.request, hitl_id, form, rules.QUESTION)
        answer = await human.answer("ask", hitl_id)
        results[call.id] = questions.answer_result(form, answer)
    yield rules.tool_output(call, results[call.id])


async def _picture(reply: Reply, image: Picture) -> Events:
    """Send the text in a picture; remember the facts in it that the user approves."""
    effects, request, node = reply.effects, reply.request, reply.effects.trace.node
    with node("vision"):
        system, held = reply.prompts["vision"]({"no_text": rules.NO_TEXT}), ""
        call = rules.vision(request, system, image.digest)
        async for chunk in effects.model.stream("vision", call):
            held += chunk.text
            # Nothing is sent before it is certain that there is text.
            if held and (reply.text or not rules.may_be_no_text(held)):
                yield reply.say(held)
                held = ""
        if held and not rules.no_text(held):
            yield reply.say(held)
        readable = not rules.no_text(reply.text)
        if not readable:
            yield reply.say(rules.text(request, "no_text"))
        if not readable or request.body.action != "analyze_for_memory":
            yield await reply.finish()
            return
    with node("memory_extraction"):
        system = reply.prompts["extraction"]({})
        facts = await rules.find_facts(request, effects, system, reply.text)
        if not facts:
            yield reply.say(rules.text(request, "nothing_found"))
            yield await reply.finish()
            return
    with node("human"):
        form = rules.confirmation_form(request, facts)
        opening = rules.open_question(request, form, memories.KIND)
        hitl_id = await effects.human.open("ask", opening)
        yield rules.hitl(request, hitl_id, form, memories.KIND)
        answer = await effects.human.answer("ask", hitl_id)
        approved = memories.approved_facts(facts, form, answer)
        yield reply.say(await rules.remember_facts(request, effects, approved))
        yield await reply.finish()
