"""The companion flow, written by hand: a loop of rounds for messages, three steps for pictures."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from cutover import EffectFailed, Request
from cutover.tape import timed
from effects import conversations, pauses
from effects.conversations import Turn
from effects.memory import Memory, memories, namespace
from effects.models import ModelEntry
from effects.world import current, new_id, read_clock
from legacy.model import (
    Answer,
    Message,
    ToolCall,
    ToolResult,
    ask,
    offered,
    render,
    run_tools,
    stream,
)
from rules import extraction, forms, intents, prompts
from rules.flows import companion as wire
from rules.intents import emotion_of
from rules.models import HISTORY, MOST_ITERATIONS, window
from rules.prompts import text, tool_error

log = logging.getLogger(__name__)

_ASKING: Final[Message] = {"type": "function", "function": forms.ASK_HUMAN}


@dataclass(slots=True)
class Dialogue:
    """One exchange of a session; every id is drawn before the first question to the user."""

    session: str
    user: str | None
    owner: str
    options: wire.CompanionOptions
    now: str
    turn: str
    reply: str
    said: str = ""

    def say(self, content: str) -> wire.CompanionText:
        """Add a piece to the reply and return its event."""
        self.said += content
        return wire.CompanionText(content)

    def notice(self, name: str, **values: object) -> wire.CompanionText:
        """Add a fixed text to the reply and return its event."""
        return self.say(text("companion", self.options.texts, name, **values))

    async def keep(self, turn_id: str, role: Any, content: str) -> None:
        """Store what was said, once."""
        turn = Turn(
            turn_id, "companion", self.session, role, content, user_id=self.user, at=self.now
        )
        await pauses.idempotent(conversations.add, turn)


async def companion(
    request: Request[wire.CompanionRequest | wire.ImageRequest, wire.CompanionOptions],
) -> AsyncIterator[wire.CompanionEvent]:
    """Answer a message, or read a picture; the reply is stored whole, before the last event."""
    body, options = request.body, request.options
    pictured = isinstance(body, wire.ImageRequest)
    with timed("initialize"):
        entry = current().models.find(options.vision_model_id if pictured else options.model_id)
        times_and_ids = await read_clock(), await new_id("message"), await new_id("message")
        whose = wire.memory_owner(body.user_id, body.session_id)
        dialogue = Dialogue(body.session_id, body.user_id, whose, options, *times_and_ids)
    if isinstance(body, wire.ImageRequest):
        steps = _picture(dialogue, body, entry)
    else:
        steps = _message(dialogue, body, entry)
    async with aclosing(steps):
        async for event in steps:
            yield event
    await dialogue.keep(dialogue.reply, "assistant", dialogue.said)
    yield wire.CompanionDone("completed")


# Messages


async def _message(
    dialogue: Dialogue, body: wire.CompanionRequest, entry: ModelEntry
) -> AsyncGenerator[wire.CompanionEvent, None]:
    """Answer in rounds: what the model says, the tools it calls, the question it asks."""
    options = dialogue.options
    with timed("initialize"):
        history = await conversations.history("companion", dialogue.session, HISTORY)
        await dialogue.keep(dialogue.turn, "user", body.message)
    with timed("emotion"):
        emotion = emotion_of(body.message)
        yield emotion
    with timed("memory"):
        recalled = await _recalled(dialogue, body.message)
    messages = _messages(dialogue, body.message, history, emotion, recalled)
    enabled, warmth = options.enable_tools and entry.tools, options.temperature
    tools = [*offered(entry, enabled=True), _ASKING] if enabled else []
    for left in range(MOST_ITERATIONS, -1, -1):
        answer = Answer()
        pieces = stream(entry, messages, answer, tools, last=not left, temperature=warmth)
        with timed("reasoning"):
            async for piece, _ in pieces:
                if piece:
                    yield dialogue.say(piece)
        calls = answer.calls
        if not left or not answer.runs:
            return
        asked = forms.DividedCalls(tuple(range(len(calls))))
        if tools:
            asked = forms.divide_calls([(call.name, call.arguments) for call in calls])
        question = await new_id("hitl") if asked.form is not None else ""
        results: dict[int, ToolResult] = {}
        with timed("tools"):
            async for place, result in _results(dialogue, calls, asked, tools):
                results[place] = result
                yield wire.CompanionToolResult(result.call.name, result.ok, result.content)
        if any(one.content == tool_error("outcome_unknown") for one in results.values()):
            yield dialogue.notice("outcome_unknown")  # the model would only try again
            return
        if asked.question is not None and asked.form is not None:
            with timed("human"):
                yield wire.CompanionHitl(question, dialogue.session, wire.QUESTION, asked.form)
                told = forms.answer_text(asked.form, await pauses.answer(question))
                results[asked.question] = ToolResult(calls[asked.question], told, ok=True)
        messages.append(answer.message())
        messages += [results[place].message() for place in range(len(calls))]


async def _recalled(dialogue: Dialogue, message: str) -> list[str]:
    """Return what is remembered; nothing where the store fails, since a reply needs no memories."""
    query = extraction.memory_query([message])
    try:
        found = await current().memory.asearch(
            namespace(dialogue.owner), query=query, limit=extraction.RECALLED
        )
    except EffectFailed as failure:
        log.warning("session=%s recalls nothing error=%s", dialogue.session, failure)
        return []
    return [one.text for one in memories(found)]


def _messages(
    dialogue: Dialogue,
    message: str,
    history: Sequence[Turn],
    emotion: wire.CompanionEmotion,
    recalled: list[str],
) -> list[Message]:
    """Return the prompt, the newest of what was said before, and the message."""
    options = dialogue.options
    shown = window(history, options.history_tokens)
    hidden = [one.content for one in history[: len(history) - len(shown)] if one.role == "user"]
    parameters = {
        **prompts.moment_parameters(datetime.fromisoformat(dialogue.now), options.timezone),
        "emotion": emotion.primary,
        "intensity": f"{emotion.intensity:.2f}",
        "intent": intents.intent_snippet(message),
        "working_memory": prompts.working_memory(len(history), hidden, options.texts),
        "memories": recalled,
    }
    return [
        {"role": "system", "content": render("companion_system", parameters)},
        *({"role": one.role, "content": one.content} for one in shown),
        {"role": "user", "content": message},
    ]


async def _results(
    dialogue: Dialogue, calls: Sequence[ToolCall], asked: forms.DividedCalls, tools: list[Message]
) -> AsyncIterator[tuple[int, ToolResult]]:
    """Run a round's tools at the same time; yield all results but the user's, in index order."""
    wanted = [calls[place] for place in asked.runs]
    running = run_tools(wanted, tools, user_id=dialogue.owner, session_id=dialogue.session)
    async with aclosing(running) as results:  # type: ignore[type-var] # a generator by its body
        for place, call in enumerate(calls):
            if place in asked.errors:
                yield place, ToolResult(call, tool_error(asked.errors[place]), ok=False)
            elif place != asked.question:
                yield place, await anext(results)


# Pictures


async def _picture(
    dialogue: Dialogue, body: wire.ImageRequest, entry: ModelEntry
) -> AsyncGenerator[wire.CompanionEvent, None]:
    """Read the text in a picture, and remember of it what the user approves."""
    texts, answer = dialogue.options.texts, Answer()
    await dialogue.keep(dialogue.turn, "user", text("companion", texts, "picture"))
    with timed("vision"):
        asked = _looking(body.image, texts)
        async for piece, _ in stream(entry, asked, answer, temperature=wire.READING_TEMPERATURE):
            if piece:
                yield dialogue.say(piece)
        if not answer.text:
            yield dialogue.notice("no_text")
    if body.action == "analyze_only" or not extraction.has_text(answer.text, texts):
        return
    with timed("memory_extraction"):
        facts = await _facts(dialogue, answer.text)
    if not facts:
        yield dialogue.notice("nothing_found")
        return
    with timed("human"):
        form, question = extraction.memory_form(facts, texts), await new_id("hitl")
        yield wire.CompanionHitl(question, dialogue.session, wire.MEMORY, form)
        approved = extraction.approved_facts(facts, form, await pauses.answer(question))
        async for said in _remember(dialogue, question, approved):
            yield said


def _looking(image: str, texts: dict[str, str]) -> list[Message]:
    no_text = text("companion", texts, "no_text")
    content = [
        {"type": "text", "text": text("companion", texts, "picture")},
        {"type": "image_url", "image_url": {"url": image}},
    ]
    return [
        {"role": "system", "content": render("companion_vision", {"no_text": no_text})},
        {"role": "user", "content": content},
    ]


async def _facts(dialogue: Dialogue, read: str) -> tuple[extraction.Fact, ...]:
    """Ask the model for facts that are worth remembering."""
    options = dialogue.options
    asked: list[Message] = [
        {"role": "system", "content": render("companion_extraction", {})},
        {"role": "user", "content": read},
    ]
    entry = current().models.find(options.model_id)
    answer = await ask(entry, asked, temperature=wire.READING_TEMPERATURE)
    return extraction.read_facts(answer.text, options.least_confidence)


async def _remember(
    dialogue: Dialogue, question: str, facts: Sequence[extraction.Fact]
) -> AsyncIterator[wire.CompanionText]:
    """Write facts, and tell the user what became of them."""
    written = 0
    for number, fact in enumerate(facts, 1):
        memory = Memory(f"{question}-{number}", fact.text, fact.type, dialogue.session)
        put, place = current().memory.aput, namespace(dialogue.owner)
        written += await pauses.known(put, place, memory.id, memory.value())
    if written:
        yield dialogue.notice("remembered", count=written)
    elif not facts:
        yield dialogue.notice("not_remembered")
    if written < len(facts):
        yield dialogue.notice("outcome_unknown")
