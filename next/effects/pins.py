"""Pins: the stack that a conversation stays with, from its first turn on."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from sqlalchemy import select

from effects.database import PinRow
from effects.world import current

MOST_CHARACTERS: Final = 512
"""Characters of a conversation's id that are stored as they are."""


async def pin(flow: str, conversation: str, stack: str) -> str:
    """Return the stack of a conversation: `stack`, where none is pinned yet.

    Of two first turns at once both get the same. Raises SQLAlchemy's errors.
    """
    world, conversation = current(), _stored(conversation)
    insert = world.database.insert_new(
        PinRow, flow=flow, conversation=conversation, stack=stack, at=world.clock()
    )
    pinned = select(PinRow.stack).where(PinRow.flow == flow, PinRow.conversation == conversation)
    async with world.database.engine.connect() as connection:
        if found := (await connection.execute(pinned)).scalar():  # every turn but the first
            return str(found)
    async with world.database.engine.begin() as connection:
        await connection.execute(insert)
        return str((await connection.execute(pinned)).scalar_one())


async def forget(flow: str, conversation: str, *, dry_run: bool = False) -> int:
    """Remove a conversation's pin and return 1, or 0 where it has none."""
    of_one = (PinRow.flow == flow, PinRow.conversation == _stored(conversation))
    return await current().database.remove(PinRow, *of_one, dry_run=dry_run)


def _stored(conversation: str) -> str:
    """Return what a conversation is stored as: an id that no index takes, as its digest."""
    if len(conversation) <= MOST_CHARACTERS and "\0" not in conversation:
        return conversation
    return f"blake2b:{blake2b(conversation.encode()).hexdigest()}"
