"""The companion flow, written by hand: a loop of rounds for messages, three steps for pictures."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from cutover import EffectFailed, Request
from cutover.tape import timed
from effects import clock, conversations, ids, pauses
from effects.conversations import Turn
from effects.memory import Memory, memories, namespace
from effects.models import ModelEntry
from effects.world import current
from legacy.model import (
    Answer,
    Message,
    ToolCall,
    ToolResult,
    ask,
    offered,
    run_tools,
    stream,
)
from legacy.templates import render
from rules.emotion import emotion_of
from rules.extraction import (
    RECALLED,
    Fact,
    approved_facts,
    has_text,
    memory_form,
    memory_query,
    read_facts,
)
from rules.flows.companion import (
    MEMORY,
    QUESTION,
    READING_TEMPERATURE,
    CompanionDone,
    CompanionEmotion,
    CompanionEvent,
    CompanionHitl,
    CompanionOptions,
    CompanionRequest,
    CompanionText,
    CompanionToolResult,
    ImageRequest,
    memory_owner,
)
from rules.forms import ASK_HUMAN, AskedCalls, answer_text, divide_calls
from rules.intents import intent_snippet
from rules.prompts import moment_parameters, working_memory
from rules.texts import text, tool_error
from rules.tokens import HISTORY, window
from rules.tools import ASK_HUMAN_DESCRIPTION, ASK_HUMAN_SCHEMA, MOST_ITERATIONS, after_answer

log = logging.getLogger(__name__)

_ASKING: Final[Message] = {
    "type": "function",
    "function": {
        "name": ASK_HUMAN,
        "description": ASK_HUMAN_DESCRIPTION,
        "parameters": ASK_HUMAN_SCHEMA,
    },
}


@dataclass(slots=True)
class Dialogue:
    """One exchange of a session; every id is drawn before the first question to the user."""

    session: str
    user: str | None
    owner: str
    options: CompanionOptions
    now: str
    turn: str
    reply: str
    said: str = ""

    def say(self, content: str) -> CompanionText:
        """Add a piece to the reply and return its event."""
        self.said += content
        return CompanionText(content)

    def notice(self, name: str, **values: object) -> CompanionText:
        """Add a fixed text to the reply and return its event."""
        return self.say(text("companion", self.options.texts, name, **values))

    async def keep(self, turn_id: str, role: Any, content: str) -> None:
        """Store what was said, once."""
        turn = Turn(
            id=turn_id,
            flow="companion",
            chat_id=self.session,
            role=role,
            content=content,
            user_id=self.user,
            at=self.now,
        )
        await pauses.idempotent(conversations.add, turn)


async def companion(
    request: Request[CompanionRequest | ImageRequest, CompanionOptions],
) -> AsyncIterator[CompanionEvent]:
    """Answer a message, or read a picture; the reply is stored whole, before the last event."""
    body, options = request.body, request.options
    pictured = isinstance(body, ImageRequest)
    with timed("initialize"):
        entry = current().models.find(options.vision_model_id if pictured else options.model_id)
        times_and_ids = await clock.now(), await ids.new("message"), await ids.new("message")
        whose = memory_owner(body.user_id, body.session_id)
        dialogue = Dialogue(body.session_id, body.user_id, whose, options, *times_and_ids)
    if isinstance(body, ImageRequest):
        steps = _picture(dialogue, body, entry)
    else:
        steps = _message(dialogue, body, entry)
    async with aclosing(steps):
        async for event in steps:
            yield event
    await dialogue.keep(dialogue.reply, "assistant", dialogue.said)
    yield CompanionDone("completed")


# Messages


async def _message(
    dialogue: Dialogue, body: CompanionRequest, entry: ModelEntry
) -> AsyncGenerator[CompanionEvent, None]:
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
    names = current().tools.names if options.enable_tools and entry.tools else None
    specs = None if names is None else [*offered(names), _ASKING]
    for left in range(MOST_ITERATIONS, -1, -1):
        answer = Answer()
        with timed("reasoning"):
            async for piece, _ in stream(
                *(entry, messages, answer),
                temperature=options.temperature,
                tools=specs,
                tool_choice=("auto" if left else "none") if specs else None,
            ):
                if piece:
                    yield dialogue.say(piece)
        calls = answer.calls
        if not left or after_answer(answer.finish, len(calls)) != "tools":
            return
        asked = AskedCalls(tuple(range(len(calls))))
        if names is not None:
            asked = divide_calls([(call.name, call.arguments) for call in calls])
        question = await ids.new("hitl") if asked.form is not None else ""
        results: dict[int, ToolResult] = {}
        with timed("tools"):
            async for place, result in _results(dialogue, calls, asked, names or ()):
                results[place] = result
                yield CompanionToolResult(result.call.name, result.ok, result.content)
        if any(one.content == tool_error("outcome_unknown") for one in results.values()):
            yield dialogue.notice("outcome_unknown")  # the model would only try again
            return
        if asked.question is not None and asked.form is not None:
            with timed("human"):
                yield CompanionHitl(question, dialogue.session, QUESTION, asked.form)
                told = answer_text(asked.form, await pauses.answer(question))
                results[asked.question] = ToolResult(calls[asked.question], told, ok=True)
        messages.append(answer.message())
        messages += [results[place].message() for place in range(len(calls))]


async def _recalled(dialogue: Dialogue, message: str) -> list[str]:
    """Return what is remembered; nothing where the store fails, since a reply needs no memories."""
    query = memory_query([message])
    try:
        found = await current().memory.asearch(
            namespace(dialogue.owner), query=query, limit=RECALLED
        )
    except EffectFailed as failure:
        log.warning("session=%s recalls nothing error=%s", dialogue.session, failure)
        return []
    return [one.text for one in memories(found)]


def _messages(
    dialogue: Dialogue,
    message: str,
    history: Sequence[Turn],
    emotion: CompanionEmotion,
    recalled: list[str],
) -> list[Message]:
    """Return the prompt, the newest of what was said before, and the message."""
    options = dialogue.options
    shown = window(history, lambda one: one.content, options.history_tokens, HISTORY)
    hidden = [one.content for one in history[: len(history) - len(shown)] if one.role == "user"]
    parameters = {
        **moment_parameters(datetime.fromisoformat(dialogue.now), options.timezone),
        "emotion": emotion.primary,
        "intensity": f"{emotion.intensity:.2f}",
        "intent": intent_snippet(message),
        "working_memory": working_memory(len(history), hidden, options.texts),
        "memories": recalled,
    }
    return [
        {"role": "system", "content": render("companion_system", parameters)},
        *({"role": one.role, "content": one.content} for one in shown),
        {"role": "user", "content": message},
    ]


async def _results(
    dialogue: Dialogue, calls: Sequence[ToolCall], asked: AskedCalls, names: Sequence[str]
) -> AsyncIterator[tuple[int, ToolResult]]:
    """Run a round's tools at the same time; yield all results but the user's, in index order."""
    wanted = [calls[place] for place in asked.runs]
    running = run_tools(wanted, names, user_id=dialogue.owner, session_id=dialogue.session)
    async with aclosing(running) as results:  # type: ignore[type-var] # a generator by its body
        for place, call in enumerate(calls):
            if place in asked.errors:
                yield place, ToolResult(call, tool_error(asked.errors[place]), ok=False)
            elif place != asked.question:
                yield place, await anext(results)


# Pictures


async def _picture(
    dialogue: Dialogue, body: ImageRequest, entry: ModelEntry
) -> AsyncGenerator[CompanionEvent, None]:
    """Read the text in a picture, and remember of it what the user approves."""
    texts, answer = dialogue.options.texts, Answer()
    await dialogue.keep(dialogue.turn, "user", text("companion", texts, "picture"))
    with timed("vision"):
        asked = _looking(body.image, texts)
        async for piece, _ in stream(entry, asked, answer, temperature=READING_TEMPERATURE):
            if piece:
                yield dialogue.say(piece)
        if not answer.text:
            yield dialogue.notice("no_text")
    if body.action == "analyze_only" or not has_text(answer.text, texts):
        return
    with timed("memory_extraction"):
        facts = await _facts(dialogue, answer.text)
    if not facts:
        yield dialogue.notice("nothing_found")
        return
    with timed("human"):
        form, question = memory_form(facts, texts), await ids.new("hitl")
        yield CompanionHitl(question, dialogue.session, MEMORY, form)
        approved = approved_facts(facts, form, await pauses.answer(question))
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


async def _facts(dialogue: Dialogue, read: str) -> tuple[Fact, ...]:
    """Ask the model for facts that are worth remembering."""
    options = dialogue.options
    asked: list[Message] = [
        {"role": "system", "content": render("companion_extraction", {})},
        {"role": "user", "content": read},
    ]
    entry = current().models.find(options.model_id)
    answer = await ask(entry, asked, temperature=READING_TEMPERATURE)
    return read_facts(answer.text, options.least_confidence)


async def _remember(
    dialogue: Dialogue, question: str, facts: Sequence[Fact]
) -> AsyncIterator[CompanionText]:
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
