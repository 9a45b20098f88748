"""Pictures shown to a companion, the old way: read, searched for what may be remembered."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from rules import companion as rules
from rules import memories
from rules.memories import entries, worth

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from contract.flows.companion import CompanionEvent
    from legacy.visit import Visit
    from rules.images import Picture
    from rules.memories import Fact

    Events = AsyncGenerator[CompanionEvent]


async def look(visit: Visit, seen: Picture) -> Events:
    """Say what stands in a picture; remember of it what the user wants."""
    with visit.effects.trace.node("vision"):
        async with aclosing(_read(visit, seen)) as events:
            async for event in events:
                yield event
    read = visit.text
    if rules.no_text(read):
        yield visit.say(rules.text(visit.asked, "no_text"))
    elif visit.asked.body.action == "analyze_for_memory":
        async with aclosing(_learn(visit, read)) as events:
            async for event in events:
                yield event


async def _read(visit: Visit, seen: Picture) -> Events:
    """Read the text in a picture; whether there is any is certain before the first word."""
    system = visit.prompts.vision({"no_text": rules.NO_TEXT})
    held = ""
    async for chunk in visit.effects.model.stream(
        "vision", rules.vision(visit.asked, system, seen)
    ):
        held += chunk.text
        if held and (visit.text or not rules.may_be_no_text(held)):
            yield visit.say(held)
            held = ""
    if held and not rules.no_text(held):
        yield visit.say(held)


async def _learn(visit: Visit, read: str) -> Events:
    """Find what may be remembered, let the user confirm it, and remember what they approve."""
    with visit.effects.trace.node("extraction"):
        found = await _found(visit, read)
    if not found:
        yield visit.say(rules.text(visit.asked, "nothing_found"))
        return
    form = rules.confirming(visit.asked, found)
    hitl_id = await visit.put(form, memories.KIND)
    yield rules.hitl(visit.asked, hitl_id, form, memories.KIND)
    kept = memories.approved(found, form, await visit.answer(hitl_id))
    yield visit.say(await _remember(visit, kept))


async def _found(visit: Visit, read: str) -> tuple[Fact, ...]:
    call = rules.extraction(visit.asked, visit.prompts.extraction({}), read)
    answer = ""
    async for chunk in visit.effects.model.stream("extraction", call):
        answer += chunk.text
    return worth(answer, visit.options.least_confidence)


async def _remember(visit: Visit, kept: tuple[Fact, ...]) -> str:
    if not kept:
        return rules.text(visit.asked, "not_remembered")
    with visit.effects.trace.node("remember"):
        ids = [await visit.effects.ids.new("memory") for _ in kept]
        body = visit.asked.body
        written = await visit.effects.memory.write(
            "remember", entries(kept, ids, rules.owner(body), body.session_id)
        )
    return rules.text(visit.asked, "remembered", count=written)
