"""Forgets users and conversations in every store: `cutover forget`."""

import asyncio
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import psycopg
from sqlalchemy.exc import SQLAlchemyError

from cutover.errors import Unusable
from effects import conversations, rollout, threads
from effects.conversations import Chat, NotForgotten
from effects.memory import items, namespace, readings
from effects.pauses import Pauses
from effects.world import World
from harness import root
from harness.builtin import completed
from harness.config import load
from router import captures
from router.captures import Captures
from rules.flows import FLOWS
from rules.flows.companion import memory_owner

STORES = (
    *("captures", "feedback", "pauses", "pins", "threads"),
    *("memories", "readings", "turns"),
)
"""What is forgotten, in this order: the turns lead to the rest."""
WITH_THREADS = "session"
"""The flow whose graph keeps threads, and notes how far they were read for memories."""

Place = tuple[tuple[str, str], str]
"""Namespace and key in the memory store; the namespace begins with one of `STORES`."""


@dataclass(slots=True)
class Removal:
    """How many entries were removed, by store, and what could not be."""

    removed: Counter[str] = field(default_factory=Counter)
    left: list[str] = field(default_factory=list)


async def forget(
    world: World,
    users: Collection[str],
    ids: Collection[str],
    captured: Captures | None = None,
    *,
    flows: Collection[str] = FLOWS,
    dry_run: bool = False,
) -> Removal:
    """Remove users with their conversations, and the conversations of `flows` with these ids.

    In a conversation that a user had with others, their turns stay. A command that was stopped can
    be given again. A dry run counts.
    """
    done = Removal()
    whole = {(flow, one) for flow in flows for one in ids}
    chats, learnt = set(whole), set[Place]()
    for user in users:
        for where in (namespace(user), readings(user)):
            learnt |= {(where, one.key) for one in await items(world.memory, where)}
        chats |= {(WITH_THREADS, key) for where, key in learnt if where == readings(user)}
        with suppress(NotForgotten):  # said below
            shared = await conversations.users(user)
            chats |= shared.keys()
            whole |= {chat for chat, those in shared.items() if those.issubset(users)}
    for chat in whole:
        learnt |= await _learnt_in(world, chat)
    if captured is not None:
        forget_lines = partial(captures.forget, captured.store, users, chats, captured.redactor)
        found = await asyncio.to_thread(forget_lines, dry_run=dry_run)
        done.removed["captures"] = found.lines
        done.left += [f"captures: {name} cannot be read or written" for name in found.left]
        for exchange in found.exchanges:
            done.removed["feedback"] += await rollout.forget_feedback(exchange, dry_run=dry_run)
    pauses = Pauses(world.database, world.clock)
    for flow, one in sorted(chats):
        done.removed["pauses"] += await pauses.forget(flow, one, dry_run=dry_run)
        done.removed["pins"] += await rollout.forget_pin(flow, one, dry_run=dry_run)
        if flow == WITH_THREADS:
            done.removed["threads"] += await threads.forget(world.threads, one, dry_run=dry_run)
    for flow in flows:  # one of them may be sticky by user
        for user in users:
            done.removed["pins"] += await rollout.forget_pin(flow, user, dry_run=dry_run)
    for where, key in learnt:
        done.removed[where[0]] += 1
        if not dry_run:
            await world.memory.adelete(where, key)
    try:
        done.removed["turns"] = await conversations.forget(whole, users, dry_run=dry_run)
    except NotForgotten as error:
        done.left.append(str(error))
    return done


async def _learnt_in(world: World, chat: Chat) -> set[Place]:
    """Return what was learnt in a conversation, and what notes how far it was read."""
    flow, chat_id = chat
    users = {turn.user_id for turn in await conversations.messages(flow, chat_id) if turn.user_id}
    alone = namespace(memory_owner(None, chat_id))
    found = {(alone, one.key) for one in await items(world.memory, alone)}
    for user in users:
        learnt = await items(world.memory, namespace(user), session_id=chat_id)
        found |= {(namespace(user), one.key) for one in learnt}
        if flow == WITH_THREADS and await world.memory.aget(readings(user), chat_id):
            found.add((readings(user), chat_id))
    return found


async def forget_configured(
    config: Path | None, users: Collection[str], ids: Collection[str], *, dry_run: bool
) -> Removal:
    """Forget in the stores and flows of a file; raises `ConfigRefused` and `Unusable`."""
    settings = load(config)
    try:
        async with root.stores(settings) as stores, completed(stores, settings) as world:
            flows, captured = {*FLOWS, *settings.flows}, root.captures_of(settings)
            return await forget(world, users, ids, captured, flows=flows, dry_run=dry_run)
    except (SQLAlchemyError, psycopg.Error, httpx.HTTPError, OSError) as error:
        why = (
            f"a store failed with {type(error).__name__}, and not all was removed: see that each "
            "can be reached, and give the command again"
        )
        raise Unusable(where="[stores], [captures]", reason=why) from error
