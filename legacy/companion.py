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
from contract.model import ToolResult
from contract.ports import Effects
from contract.stores import Turn
from legacy import rounds
from legacy.templates import FOLDER, system_prompt
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
	reasoning -.-> __end__;
	tools -.-> reasoning;
	tools -.-> human;
	human --> reasoning;
"""
PICTURES = """graph TD;
	__start__ --> vision;
	vision -.-> memory_extraction;
	vision -.-> __end__;
	memory_extraction -.-> human;
	memory_extraction -.-> __end__;
	human --> __end__;
"""


def read_prompts(folder: Path = FOLDER) -> Mapping[str, Render]:
    """Read the prompts of the flow from a folder, by name."""
    return {
        name: system_prompt(f"companion_{name}.j2", folder, default)
        for name, default in rules.PROMPTS.items()
    }


class Reply:
    """The reply in progress, and what it is made with; `text` is what was sent of it so far."""

    def __init__(
        self, request: rules.CompanionRequest, effects: Effects, prompts: Mapping[str, Render]
    ) -> None:
        self.request = request
        self.effects = effects
        self.prompts = prompts
        self.text = ""
        self.earlier: tuple[Turn, ...] = ()

    def say(self, content: str) -> CompanionText:
        """Add a piece to the reply; returns its event."""
        self.text += content
        return CompanionText(content)


def companion(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    rendered = read_prompts(prompts)

    async def flow(
        request: rules.CompanionRequest, effects: Effects
    ) -> AsyncIterator[CompanionEvent]:
        reply, body = Reply(request, effects, rendered), request.body
        with effects.trace.node("admission"):
            image = picture(body.image) if isinstance(body, ImageTurn) else None
            turn, reply.earlier = await rules.admit(request, effects)
        try:
            answered = _message(reply, turn) if image is None else _picture(reply, image)
            async with aclosing(answered) as events:
                async for event in events:
                    yield event
            await end_session_turn(effects, body.session_id, turn, reply.text)
        except EffectFailed as failure:
            for event in failed(failure.fault.code):
                yield event
            return
        yield CompanionDone("completed")

    return flow


async def _message(reply: Reply, turn: Turn) -> Events:
    """Answer a message: emotion, memories, then rounds of model and tools."""
    effects, options, node = reply.effects, reply.request.options, reply.effects.trace.node
    with node("emotion"):
        emotion = feel(reply.request.body.message)
        yield emotion
    with node("memory"):
        recollection = rules.memories_text(
            await rounds.recalled(effects, rules.recall(reply.request))
        )
    turns, known = (*reply.earlier, turn), (emotion, recollection)
    messages, tools = await rules.lay_out(
        reply.request, effects, turns, known, reply.prompts["system"]
    )
    for round_number in range(options.max_tool_iterations + 1):
        with node("reasoning"):
            last = round_number >= options.max_tool_iterations
            call, answer = question(options, messages, tools, last=last), ModelAnswer()
            async for chunk in effects.model.stream("reasoning", call):
                if piece := answer.add(chunk):
                    yield reply.say(piece)
        todo = questions.sort_calls(answer.calls(call), asking=options.ask_human)
        if not todo.calls:
            return
        results = dict(todo.refused)
        with node("tools"):
            async with rounds.started_tools(effects, todo.runs) as running:
                tasks = {one.id: task for one, task in zip(todo.runs, running, strict=True)}
                for one in todo.before:
                    if one.id in tasks:
                        results[one.id] = await tasks[one.id]
                    yield rules.tool_output(one, results[one.id])
        if todo.question is not None:
            with node("human"):
                async with aclosing(_ask(reply, todo.question, results)) as events:
                    async for event in events:
                        yield event
        answers = [tool_answer(one, results[one.id]) for one in todo.calls]
        messages += (tool_round(answer.text, todo.calls), *answers)


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
    if rules.no_text(reply.text):
        yield reply.say(rules.text(request, "no_text"))
        return
    if request.body.action != "analyze_for_memory":
        return
    with node("memory_extraction"):
        system = reply.prompts["extraction"]({})
        facts = await rules.find_facts(request, effects, system, reply.text)
    if not facts:
        yield reply.say(rules.text(request, "nothing_found"))
        return
    with node("human"):
        form = rules.confirmation_form(request, facts)
        opening = rules.open_question(request, form, memories.KIND)
        hitl_id = await effects.human.open("ask", opening)
        yield rules.hitl(request, hitl_id, form, memories.KIND)
        answer = await effects.human.answer("ask", hitl_id)
        approved = memories.approved_facts(facts, form, answer)
        yield reply.say(await rules.remember_facts(request, effects, approved))
