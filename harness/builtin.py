"""The built-in flows: the world that their stacks act on, and what performs their operations.

Importing this loads LangGraph, the SDKs of models and what tools and workers need.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import UNSET

from cutover.errors import Refused
from effects import builtin_tools, conversations
from effects.conversations import Turn
from effects.memory import Embedder, open_memory, readings
from effects.models import DEFAULTS, ModelEntry, Models
from effects.pauses import Pauses
from effects.threads import open_threads
from effects.tools import Tools
from effects.workers import actions
from effects.workers.registry import Workers, WorkerSettings
from effects.world import World, current, use
from harness.config import Settings
from harness.containment import contexts_in_threads, watch_escapes
from router.app import Perform
from router.pauses import refusal
from rules.flows.companion import CompanionHitl, RespondRequest, human_answer
from rules.flows.ops import OpsApproval, OpsSession
from rules.flows.session import SessionMessages, StoredMessage
from rules.forms import answer_problems


@asynccontextmanager
async def completed(world: World, settings: Settings) -> AsyncIterator[World]:
    """Open the rest of a world whose stores are open, and make the whole the current one."""
    async with (
        Models(_entries(settings)) as models,
        open_memory(world.database, _embedder(settings, models), world.clock) as memory,
        open_threads(world.database) as threads,
    ):
        full = replace(
            world,
            models=models,
            memory=memory,
            threads=threads,
            tools=Tools.load(settings.tools, besides=builtin_tools.BUILT_IN),
            workers=Workers(actions.ACTIONS, msgspec.convert(settings.workers, WorkerSettings)),
        )
        watch_escapes()
        with use(full), contexts_in_threads():
            yield full


def _embedder(settings: Settings, models: Models) -> Embedder | None:
    """Return what embeds memories; without one the newest are found."""
    table = settings.embeddings
    return None if table is None else Embedder(models, table.model, table.dims)


def _entries(settings: Settings) -> Sequence[ModelEntry]:
    named = [ModelEntry(model, **one.model_dump()) for model, one in settings.models.items()]
    return named or DEFAULTS


def pauses() -> Pauses:
    """Return the store of pauses."""
    world = current()
    return Pauses(world.database, world.clock)


async def companion_respond(_: Mapping[str, str], body: RespondRequest) -> None:
    """Store the answer to a question; the same answer again changes nothing.

    Raises `Refused`: 404 unknown, 409 answered otherwise, 410 expired, 422 for what the question's
    form does not allow.
    """
    store, answer = pauses(), human_answer(body)
    question = await store.question(body.hitl_id)
    known = question is not None and question.flow == "companion"
    if question is not None and known and question.state == "open":
        form = msgspec.convert(question.question, CompanionHitl).form
        if wrong := answer_problems(form, answer):
            detail = ", ".join(f"{name}: {code}" for name, code in wrong.items())
            raise Refused(422, "bad_answer", f"the form does not allow this answer ({detail})")
    stored = await store.answer(body.hitl_id, answer) if known else "unknown"
    if stored not in {"stored", "same"}:
        raise refusal(stored)


async def ops_session(args: Mapping[str, str], _: Any) -> OpsSession:
    """Return a session of the ops flow; raises `Refused` 404 for one without messages."""
    session = args["session_id"]
    turns = await _turns("ops", session)
    waiting = await pauses().open_of("ops", session)
    pending: OpsApproval | msgspec.UnsetType = UNSET
    iteration = next((one.data["iteration"] for one in reversed(turns) if one.data), 0)
    if waiting is not None:
        iteration = sum(mark["name"] == "step" for mark in waiting.frames["marks"])
        if waiting.state == "open":
            pending = msgspec.convert(waiting.question, OpsApproval)
    return OpsSession(session, iteration, _stored(turns), pending)


async def _turns(flow: str, session: str) -> list[Turn]:
    turns = await conversations.messages(flow, session)
    if not turns:
        raise Refused(404, "unknown_session", "no session with this session_id is stored")
    return turns


def _stored(turns: Sequence[Turn]) -> tuple[StoredMessage, ...]:
    return tuple(StoredMessage(one.id, one.role, one.content) for one in turns)


async def session_messages(args: Mapping[str, str], _: Any) -> SessionMessages:
    """Return the messages of a session; raises `Refused` 404 for one without any."""
    session = args["session_id"]
    return SessionMessages(session, _stored(await _turns("session", session)))


async def session_delete(args: Mapping[str, str], _: Any) -> None:
    """Remove a session's messages, its thread, and what notes how far it was read.

    What was learnt of its users stays. Raises `Refused`: 404 for a session without messages, 409
    where a Memory service holds them.
    """
    session, world = args["session_id"], current()
    users = {one.user_id for one in await _turns("session", session) if one.user_id}
    try:
        await conversations.forget([("session", session)])
    except conversations.NotForgotten as error:
        raise Refused(409, "held_elsewhere", str(error)) from error
    await world.threads.adelete_thread(session)
    for user in users:
        await world.memory.adelete(readings(user), session)


OPERATIONS: Mapping[str, Perform] = {
    "companion.respond": companion_respond,
    "ops.session": ops_session,
    "session.messages": session_messages,
    "session.delete": session_delete,
}
"""Operations by the name that the flow gives them."""
