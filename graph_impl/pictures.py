"""Pictures shown to a companion: a graph that reads them and finds what may be remembered.

Whichever node has said all there is to say keeps it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from contract.model import ModelCall
from graph_impl.visit import VisitContext, VisitState
from rules import companion as rules
from rules import memories
from rules.images import Picture
from rules.memories import Fact, entries, worth

Visit = Runtime[VisitContext]


def question(context: VisitContext, picture: Picture) -> ModelCall:
    """Build the question for the text in a picture."""
    system = context.prompts.vision({"no_text": rules.NO_TEXT})
    return rules.vision(context.asked, system, picture)


async def _vision(state: VisitState, runtime: Visit) -> Command[Literal["extraction", "__end__"]]:
    """Read the text in the picture."""
    context = runtime.context
    with context.effects.trace.node("vision"):
        text = await _read(context, msgspec.convert(state["picture"], Picture))
    if rules.no_text(text):
        text += await context.say(rules.text(context.asked, "no_text"))
    elif context.asked.body.action == "analyze_for_memory":
        return Command(update={"text": text}, goto="extraction")
    await context.keep(text)
    return Command(goto="__end__")


async def _read(context: VisitContext, picture: Picture) -> str:
    """Send the text as it is read; whether there is any is certain before the first word."""
    said = held = ""
    async for chunk in context.effects.model.stream("vision", question(context, picture)):
        held += chunk.text
        if held and (said or not rules.may_be_no_text(held)):
            said += await context.say(held)
            held = ""
    if held and not rules.no_text(held):
        said += await context.say(held)
    await context.sink.taken()
    return said


async def _extraction(state: VisitState, runtime: Visit) -> Command[Literal["confirm", "__end__"]]:
    """Find what may be remembered."""
    context = runtime.context
    call = rules.extraction(context.asked, context.prompts.extraction({}), state["text"])
    answer = ""
    with context.effects.trace.node("extraction"):
        async for chunk in context.effects.model.stream("extraction", call):
            answer += chunk.text
    found = worth(answer, context.asked.options.least_confidence)
    if found:
        return Command(update={"found": msgspec.to_builtins(found)}, goto="confirm")
    said = await context.say(rules.text(context.asked, "nothing_found"))
    await context.keep(state["text"] + said)
    return Command(goto="__end__")


async def _confirm(state: VisitState, runtime: Visit) -> VisitState:
    """Let the user confirm it, and remember what they approve."""
    context = runtime.context
    found = msgspec.convert(state["found"], tuple[Fact, ...])
    form = rules.confirming(context.asked, found)
    hitl_id = await context.put(form, memories.KIND)
    answer = await context.answer(hitl_id, form, memories.KIND)
    kept = memories.approved(found, form, answer)
    said = await context.say(await _remember(context, kept))
    await context.keep(state["text"] + said)
    return {}


async def _remember(context: VisitContext, kept: tuple[Fact, ...]) -> str:
    if not kept:
        return rules.text(context.asked, "not_remembered")
    effects, body = context.effects, context.asked.body
    with effects.trace.node("remember"):
        ids = [await effects.ids.new("memory") for _ in kept]
        learnt = entries(kept, ids, rules.owner(body), body.session_id)
        written = await effects.memory.write("remember", learnt)
    return rules.text(context.asked, "remembered", count=written)


def build() -> CompiledStateGraph[Any, VisitContext, Any, Any]:
    """Compile the graph of pictures."""
    graph = StateGraph(VisitState, context_schema=VisitContext)
    graph.add_node("vision", _vision)
    graph.add_node("extraction", _extraction)
    graph.add_node("confirm", _confirm)
    graph.add_edge(START, "vision")
    return graph.compile(name="companion pictures")
