"""The audit log: what workers executed, and what people approved or rejected.

This module only adds lines. To keep others from changing them, grant no more than that in the
database.
"""

from typing import Any, Literal

import msgspec

from cutover import effect
from effects.database import AuditRow
from effects.world import current, local_time


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, who did it and when; `ok` is None where nothing was executed.

    A line is stored once for each `id`, also where its exchange runs again. `at` is ISO 8601; left
    out, it is the moment of storing, so that the entry of a second run is the same.
    `outcome_unknown`: the action was begun, and the process was killed before its result came.
    """

    id: str
    session_id: str
    who: str
    what: Literal["executed", "approved", "rejected", "outcome_unknown"]
    worker: str
    action: str
    args: dict[str, Any] = {}
    ok: bool | None = None
    message: str = ""
    at: str = ""


@effect("audit.write", writes=True)
async def write(entry: AuditEntry) -> None:
    """Add a line; one that is stored under its id already stays as it is."""
    world = current()
    at = entry.at or local_time(world.clock())
    values = msgspec.structs.asdict(entry) | {"at": at}
    async with world.database.engine.begin() as connection:
        await connection.execute(world.database.insert_new(AuditRow, **values))
