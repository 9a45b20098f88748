"""Flow `companion`: a graph of messages and one of pictures, behind the same admission.

Message: emotion ∥ memory → reasoning ⇄ tools, reasoning → human → reasoning, memory_extraction or
end. Picture: vision → memory_extraction → human → end. The node that has the last word stores the
reply and ends the stream; so does an effect that fails. A message is learnt from after its end.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from contract.errors import EffectFailed
from contract.flow import Event, Flow
from contract.flows.companion import (
    CompanionDone,
    CompanionText,
    Emotion,
    ImageTurn,
    failed,
)
from contract.human import Form, HumanAnswer
from contract.model import ToolResult
from contract.ports import Effects
from contract.stores import Turn
from graph_impl import rounds
from graph_impl.engine import Graph, RunContext, add_nodes, ask_human, end_on_failure, run
from graph_impl.rounds import Plain, RoundState, plain, plains
from graph_impl.templates import FOLDER, read_prompts
from rules import companion as rules
from rules import memories, questions
from rules.conversation import end_session_turn, tool_answer
from rules.emotion import feel
from rules.images import picture
from rules.memories import Fact
from rules.prompts import Render

log = logging.getLogger(__name__)


class MessageState(RoundState, total=False):
    """What flows between the nodes of a message; `results` are those of the round so far.

    `reply` is the turn the reply is stored as.
    """

    emotion: Plain
    memories: str
    reply: Plain
    results: dict[str, Plain]


class PictureState(TypedDict, total=False):
    """What flows between the nodes of a picture: its digest, its text, the facts found there."""

    digest: str
    text: str
    facts: list[Plain]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionContext(RunContext):
    """What one run reaches the world and the client through, and the turn it was admitted with."""

    request: rules.CompanionRequest
    prompts: Mapping[str, Render]
    turn: Turn
    earlier: tuple[Turn, ...]

    async def say(self, content: str) -> str:
        """Send a piece of the reply and return it; after the last, await `sink.drained`."""
        await self.sink.push(CompanionText(content))
        return content

    async def finish(self, text: str) -> Turn:
        """Store the whole reply, release the session and end the stream; returns the reply."""
        await self.sink.drained()
        session = self.request.body.session_id
        reply = await end_session_turn(self.effects, session, self.turn, text)
        await self.sink.send(CompanionDone("completed"))
        return reply

    async def ask(self, question: Any) -> Any:
        """Open a question, show it and wait for its answer.

        None if a question of the model's cannot be opened.
        """
        form, kind = msgspec.convert(question["form"], Form), question["kind"]
        try:
            opening = rules.open_question(self.request, form, kind)
            hitl_id = await self.effects.human.open("ask", opening)
        except EffectFailed as failure:
            if kind != rules.QUESTION:
                raise
            log.warning("the user is not asked: %s", failure.fault.code)
            return None
        await self.sink.send(rules.hitl(self.request, hitl_id, form, kind))
        return plain(await self.effects.human.answer("ask", hitl_id))


Companion = Runtime[CompanionContext]


def _ask_user(form: Form, kind: str) -> HumanAnswer | None:
    """Ask the user; None where nothing could be asked."""
    answer = ask_human({"form": plain(form), "kind": kind})
    return msgspec.convert(answer, HumanAnswer | None)


# Messages


async def _emotion(_: MessageState, runtime: Companion) -> MessageState:
    """Read the message's emotion and send it."""
    emotion = feel(runtime.context.request.body.message)
    await runtime.context.sink.send(emotion)
    return {"emotion": plain(emotion)}


async def _memory(_: MessageState, runtime: Companion) -> MessageState:
    """Recall memories."""
    query = rules.recall(runtime.context.request)
    return {"memories": rules.memories_text(await rounds.recalled(runtime.context.effects, query))}


async def _reasoning(
    state: MessageState, runtime: Companion
) -> Command[Literal["tools", "human", "memory_extraction", "__end__"]]:
    """Call the model once; a reply that calls no tool is the last."""
    context = runtime.context
    answer, update = await rounds.open_round(
        state,
        context,
        "reasoning",
        context.request.options,
        lay_out=lambda: rules.lay_out(
            context.request,
            context.effects,
            (*context.earlier, context.turn),
            (msgspec.convert(state["emotion"], Emotion), state["memories"]),
            context.prompts["system"],
        ),
        event=CompanionText,
    )
    if update is None:
        reply = await context.finish(state["text"] + answer.text)
        if not context.request.options.extract_from:
            return Command(goto="__end__")
        return Command(update={"reply": plain(reply)}, goto="memory_extraction")
    todo = _round(update["prompt"], runtime)
    return Command(update=update, goto="tools" if todo.before else "human")


async def _tools(state: MessageState, runtime: Companion) -> Command[Literal["reasoning", "human"]]:
    """Run the round's calls side by side; show them in index order."""
    context, todo = runtime.context, _round(state["prompt"], runtime)
    results = dict(todo.refused)
    async with rounds.started_tools(context.effects, todo.runs) as running:
        tasks = {call.id: task for call, task in zip(todo.runs, running, strict=True)}
        for call in todo.before:
            if call.id in tasks:
                results[call.id] = await tasks[call.id]
            await context.sink.send(rules.tool_output(call, results[call.id]))
    if todo.question is None:
        return Command(update=_answers(todo, results), goto="reasoning")
    return Command(update={"results": plain(results)}, goto="human")


async def _human(state: MessageState, runtime: Companion) -> MessageState:
    """Ask the user the round's question, once its other calls have ended."""
    todo = _round(state["prompt"], runtime)
    if todo.question is None:
        return {}
    call, form = todo.question.call, todo.question.form
    answer = _ask_user(form, rules.QUESTION)
    result = questions.NOT_ASKED if answer is None else questions.answer_result(form, answer)
    results = msgspec.convert(state.get("results", {}), dict[str, ToolResult])
    await runtime.context.sink.send(rules.tool_output(call, result))
    return _answers(todo, {**results, call.id: result})


async def _learning(state: MessageState, runtime: Companion) -> MessageState:
    """Learn from the conversation; what fails is not learnt."""
    context, reply = runtime.context, msgspec.convert(state["reply"], Turn)
    turns = (*context.earlier, context.turn)
    await rounds.attempt_learning(rules.learn(context.request, context.effects, turns, reply))
    return {}


def _round(prompt: Sequence[Plain], runtime: Companion) -> questions.Round:
    """Sort the calls of the round the last message begins."""
    options = runtime.context.request.options
    return questions.sort_calls(rounds.calls_of(prompt), asking=options.ask_human)


def _answers(todo: questions.Round, results: dict[str, ToolResult]) -> MessageState:
    answers = [plain(tool_answer(call, results[call.id])) for call in todo.calls]
    return {"prompt": answers, "results": {}}


# Pictures


async def _vision(
    state: PictureState, runtime: Companion
) -> Command[Literal["memory_extraction", "__end__"]]:
    """Read the text in the picture, sending it on the way."""
    context = runtime.context
    text = await _read(context, state["digest"])
    if rules.no_text(text):
        text += await context.say(rules.text(context.request, "no_text"))
    elif context.request.body.action == "analyze_for_memory":
        return Command(update={"text": text}, goto="memory_extraction")
    await context.finish(text)
    return Command(goto="__end__")


async def _read(context: CompanionContext, digest: str) -> str:
    """Send the text as it is read, once it is certain that the picture has some."""
    read = held = ""
    system = context.prompts["vision"]({"no_text": rules.NO_TEXT})
    call = rules.vision(context.request, system, digest)
    async for chunk in context.effects.model.stream("vision", call):
        held += chunk.text
        if held and (read or not rules.may_be_no_text(held)):
            read += await context.say(held)
            held = ""
    if held and not rules.no_text(held):
        read += await context.say(held)
    await context.sink.drained()
    return read


async def _memory_extraction(
    state: PictureState, runtime: Companion
) -> Command[Literal["human", "__end__"]]:
    """Find the facts worth remembering."""
    context = runtime.context
    system = context.prompts["extraction"]({})
    found = await rules.find_facts(context.request, context.effects, system, state["text"])
    if not found:
        notice = await context.say(rules.text(context.request, "nothing_found"))
        await context.finish(state["text"] + notice)
        return Command(goto="__end__")
    return Command(update={"facts": plains(found)}, goto="human")


async def _confirmation(state: PictureState, runtime: Companion) -> PictureState:
    """Let the user confirm the facts and remember those approved."""
    context, facts = runtime.context, msgspec.convert(state["facts"], tuple[Fact, ...])
    form = rules.confirmation_form(context.request, facts)
    answer = _ask_user(form, memories.KIND)
    approved = memories.approved_facts(facts, form, answer) if answer else ()
    notice = await rules.remember_facts(context.request, context.effects, approved)
    await context.finish(state["text"] + await context.say(notice))
    return {}


# Graphs and flow


def build_messages() -> Graph:
    """Compile the graph of messages."""
    graph = StateGraph(MessageState, context_schema=CompanionContext)
    end_on_failure(graph, failed)
    add_nodes(
        graph,
        emotion=_emotion,
        memory=_memory,
        reasoning=_reasoning,
        tools=_tools,
        human=_human,
        memory_extraction=_learning,
    )
    graph.add_edge(START, "emotion")
    graph.add_edge(START, "memory")
    graph.add_edge(["emotion", "memory"], "reasoning")
    graph.add_edge("human", "reasoning")
    graph.add_edge("memory_extraction", END)
    return graph.compile(name="companion messages")


def build_pictures() -> Graph:
    """Compile the graph of pictures."""
    graph = StateGraph(PictureState, context_schema=CompanionContext)
    end_on_failure(graph, failed)
    add_nodes(graph, vision=_vision, memory_extraction=_memory_extraction, human=_confirmation)
    graph.add_edge(START, "vision")
    graph.add_edge("human", END)
    return graph.compile(name="companion pictures")


def companion(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    messages, pictures, rendered = (
        build_messages(),
        build_pictures(),
        read_prompts("companion", prompts, rules.PROMPTS),
    )

    async def flow(request: rules.CompanionRequest, effects: Effects) -> AsyncIterator[Event]:
        body = request.body
        with effects.trace.node("admission"):
            image = picture(body.image) if isinstance(body, ImageTurn) else None
            turn, earlier = await rules.admit(request, effects)
        context = CompanionContext(
            effects=effects, request=request, prompts=rendered, turn=turn, earlier=earlier
        )
        # three supersteps a round of tools that ends in a question; some to spare
        steps = 3 * request.options.max_tool_iterations + 10
        graph = pictures if image else messages
        state: Plain = {"digest": image.digest} if image else {"results": {}}
        async with aclosing(run(graph, state, context, steps=steps)) as events:
            async for event in events:
                yield event

    return flow
