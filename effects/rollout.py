"""What a rollout remembers: the stack of each conversation, and what users think of exchanges."""

from hashlib import blake2b
from typing import Literal

import msgspec
from sqlalchemy import select

from effects.database import FeedbackRow, PinRow
from effects.world import current


async def pin(flow: str, conversation: str, stack: str) -> str:
    """Return the stack with which a conversation began, "" where it begins now, with `stack`.

    Of two first turns at once one begins it. Raises SQLAlchemy's errors.
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
        if (await connection.execute(insert)).first():
            return ""
        return str((await connection.execute(pinned)).scalar_one())


async def forget_pin(flow: str, conversation: str, *, dry_run: bool = False) -> int:
    """Remove a conversation's pin and return 1, or 0 where it has none."""
    of_one = (PinRow.flow == flow, PinRow.conversation == _stored(conversation))
    return await current().database.remove(PinRow, *of_one, dry_run=dry_run)


def _stored(conversation: str) -> str:
    """Return what a conversation is stored as: its digest, since an index takes no long ids."""
    return blake2b(conversation.encode("utf-8", "replace"), digest_size=16).hexdigest()


class Feedback(msgspec.Struct, frozen=True):
    """A user's last word on an exchange; `at` in seconds since the epoch."""

    exchange_id: str
    score: Literal[-1, 0, 1]
    comment: str | None = None
    at: float = 0.0


async def put_feedback(
    exchange_id: str, score: Literal[-1, 0, 1], comment: str | None = None
) -> None:
    """Store what a user thinks of an exchange now, in place of what was thought before."""
    world = current()
    entry = {"score": score, "comment": comment, "at": world.clock()}
    insert = world.database.insert(FeedbackRow).values(exchange_id=exchange_id, **entry)
    async with world.database.engine.begin() as connection:
        await connection.execute(
            insert.on_conflict_do_update(index_elements=["exchange_id"], set_=entry)
        )


async def feedback_since(at: float) -> list[Feedback]:
    """Return the feedback given at or after a time, the oldest first."""
    wanted = select(FeedbackRow.__table__).where(FeedbackRow.at >= at).order_by(FeedbackRow.at)
    async with current().database.engine.connect() as connection:
        return [Feedback(*row) for row in await connection.execute(wanted)]


async def forget_feedback(exchange_id: str, *, dry_run: bool = False) -> int:
    """Remove what was thought of an exchange and return 1, or 0 where nothing is stored."""
    of_one = FeedbackRow.exchange_id == exchange_id
    return await current().database.remove(FeedbackRow, of_one, dry_run=dry_run)
