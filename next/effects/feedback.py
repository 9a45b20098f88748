"""What users thought of exchanges: `POST /feedback`."""

from __future__ import annotations

from typing import Literal

import msgspec
from sqlalchemy import delete, select

from effects.database import FeedbackRow
from effects.world import current


class Feedback(msgspec.Struct, frozen=True):
    """A user's last word on an exchange; `at` in seconds since the epoch."""

    exchange_id: str
    score: Literal[-1, 0, 1]
    comment: str | None = None
    at: float = 0.0


async def put(exchange_id: str, score: Literal[-1, 0, 1], comment: str | None = None) -> None:
    """Store what a user thinks of an exchange now, in place of what was thought before."""
    world = current()
    entry = Feedback(exchange_id, score, comment, world.clock())
    insert = world.database.insert_new(FeedbackRow, **msgspec.structs.asdict(entry))
    async with world.database.engine.begin() as connection:
        await connection.execute(
            delete(FeedbackRow).where(FeedbackRow.exchange_id == entry.exchange_id)
        )
        await connection.execute(insert)


async def since(at: float) -> list[Feedback]:
    """Return the feedback given at or after a time, the oldest first."""
    wanted = select(FeedbackRow.__table__).where(FeedbackRow.at >= at).order_by(FeedbackRow.at)
    async with current().database.engine.connect() as connection:
        return [Feedback(*row) for row in await connection.execute(wanted)]


async def forget(exchange_id: str, *, dry_run: bool = False) -> int:
    """Remove what was thought of an exchange and return 1, or 0 where nothing is stored."""
    of_one = FeedbackRow.exchange_id == exchange_id
    return await current().database.remove(FeedbackRow, of_one, dry_run=dry_run)
