"""The session flow, written by hand: recall, answer, store, and learn once the answer is out."""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import openai

from cutover import EffectFailed, Refused, Request, StackFailed
from cutover.tape import timed
from effects import conversations
from effects.conversations import Turn
from effects.memory import Memory, memories, namespace, readings
from effects.models import ModelEntry
from effects.world import current, new_id, read_clock
from legacy.model import Answer, Message, ask, offered, render, run_tools, stream
from rules import extraction
from rules.flows import session as wire
from rules.models import HISTORY, MOST_ITERATIONS, window
from rules.prompts import memories_paragraph

log = logging.getLogger(__name__)

Asked = Request[wire.SessionRequest, wire.SessionOptions]


async def session(request: Asked) -> AsyncIterator[wire.SessionEvent]:
    """Answer one message of a session."""
    body, options = request.body, request.options
    session_id = body.session_id or await new_id("session")
    entry = current().models.find(options.model_id)
    history = await _history(request)
    await _store(session_id, "user", body.message, body.user_id)
    if not history:
        yield wire.SessionCreated({"session_id": session_id})
    yield wire.SessionThinking()
    with timed("recall_memory"):
        recalled = await _recall(request, session_id, new=not history)
    messages = _messages(request, history, recalled)
    said, usage, answer = "", Counter[str](), Answer()
    tools, warmth = offered(entry, enabled=options.enable_tools), options.temperature
    for left in range(MOST_ITERATIONS, -1, -1):
        answer = Answer(usage=usage)
        asked = stream(entry, messages, answer, tools, last=not left, temperature=warmth)
        with timed("process"):
            async for piece, _reasoning in asked:
                if piece:
                    yield wire.SessionText({"content": piece})
        said += answer.text
        if not left or not answer.runs:
            break
        messages.append(answer.message())
        with timed("tools"):
            users = {"user_id": body.user_id or "", "session_id": session_id}
            async for result in run_tools(answer.calls, tools, **users):
                messages.append(result.message())
    reply = await _store(session_id, "assistant", said, body.user_id)
    final = wire.FinalMessage(id=reply.id, content=said)
    yield wire.SessionDone(wire.SessionAnswer(final, wire.Usage(**usage)))
    with timed("extract_memory"):
        await _learn(entry, options, body.user_id, session_id)


async def _history(request: Asked) -> list[Turn]:
    """Return what was said before in the session; raises `Refused` for one that must exist."""
    session_id = request.body.session_id
    if session_id is None:
        return []
    history = await conversations.history("session", session_id, HISTORY)
    if not history and request.options.unknown_session == "refuse":
        raise Refused(404, "unknown_session", "no session with this session_id is stored")
    return history


async def _store(session_id: str, role: Any, content: str, user_id: str | None) -> Turn:
    turn_id, now = await new_id("message"), await read_clock()
    turn = Turn(turn_id, "session", session_id, role, content, user_id=user_id, at=now)
    await conversations.add(turn)
    return turn


async def _recall(request: Asked, session_id: str, *, new: bool) -> list[Memory]:
    """Return what is remembered of the user from other sessions; nothing where that fails."""
    body = request.body
    if not body.user_id or not (new or request.options.recall == "always"):
        return []
    try:
        found = await current().memory.asearch(
            namespace(body.user_id),
            query=extraction.memory_query([body.message]),
            filter={"session_id": {"$ne": session_id}},
            limit=extraction.RECALLED,
        )
    except EffectFailed as error:
        log.warning("session=%s recalls nothing error=%s", session_id, error)
        return []
    return memories(found)


def _messages(request: Asked, history: Sequence[Turn], recalled: Sequence[Memory]) -> list[Message]:
    """Return the system prompt, which is made anew each time, what was said, and the message."""
    options = request.options
    paragraph = memories_paragraph("session", options.texts, [one.text for one in recalled])
    parameters = {"system_prompt": options.system_prompt, "memories": paragraph}
    messages = [{"role": "system", "content": render("session_system", parameters)}]
    shown = window(history, options.history_tokens)
    messages += [{"role": turn.role, "content": turn.content} for turn in shown]
    return [*messages, {"role": "user", "content": request.body.message}]


async def _learn(
    entry: ModelEntry, options: wire.SessionOptions, user_id: str | None, session_id: str
) -> None:
    """Remember what is new in the session; what fails is read again after the next message."""
    if not user_id or not options.extract_from:
        return
    try:
        turns = await _unread(options, user_id, session_id)
        if turns:
            await _read(entry, turns, user_id, session_id)
    except (EffectFailed, StackFailed, openai.OpenAIError) as error:
        log.warning("session=%s was not read for memories error=%s", session_id, error)


async def _unread(options: wire.SessionOptions, user_id: str, session_id: str) -> list[Turn]:
    """Return the messages that were not read yet: the user's own, and the answers to them."""
    history = await conversations.history("session", session_id, max(HISTORY, options.extract_from))
    turns = [one for one in history if one.user_id in {None, user_id}]
    if len(turns) < options.extract_from:
        return []
    read = await current().memory.aget(readings(user_id), session_id)
    if read is not None:
        for place, turn in enumerate(turns):
            if turn.id == read.value["message"]:
                turns = turns[place + 1 :]
                break
    return list(window(turns, options.history_tokens))


async def _read(entry: ModelEntry, turns: Sequence[Turn], user_id: str, session_id: str) -> None:
    """Ask the model what to remember of messages, do so, and note how far they were read."""
    store, where = current().memory, namespace(user_id)
    query = extraction.memory_query([one.content for one in turns if one.role == "user"])
    known = memories(await store.asearch(where, query=query, limit=extraction.KNOWN))
    lines = extraction.known_lines([one.text for one in known])
    spoken = "\n".join(f"{one.role}: {one.content}" for one in turns)
    asked: list[Message] = [
        {"role": "system", "content": render("session_extraction", {"known": lines})},
        {"role": "user", "content": spoken},
    ]
    answer = await ask(entry, asked, temperature=0.0)
    seen = {one.text for one in known}
    for change in extraction.read_changes(answer.text, len(known)):
        text = (change.text or "").strip()
        if change.op == "delete":
            await store.adelete(where, known[extraction.known_index(change)].id)
            continue
        if change.op == "update":
            before = known[extraction.known_index(change)]
            key, kind = before.id, before.type if change.type == "other" else change.type
        else:
            nearest = memories(await store.asearch(where, query=text, limit=1))
            if text in seen or extraction.is_known(nearest[0].score if nearest else None):
                continue
            key, kind = await new_id("memory"), change.type
        seen.add(text)
        await store.aput(where, key, Memory(key, text, kind, session_id).value())
    await store.aput(readings(user_id), session_id, {"message": turns[-1].id}, index=False)
