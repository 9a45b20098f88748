"""Pins: the stack that a conversation stays with, from its first turn on."""

from __future__ import annotations

from sqlalchemy import select

from effects.database import PinRow
from effects.world import current


async def pin(flow: str, conversation: str, stack: str) -> str:
    """Return the stack of a conversation: `stack`, where none is pinned yet.

    Of two first turns at once both get the same. Raises SQLAlchemy's errors.
    """
    world = current()
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
    of_one = (PinRow.flow == flow, PinRow.conversation == conversation)
    return await current().database.remove(PinRow, *of_one, dry_run=dry_run)
