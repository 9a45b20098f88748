"""The audit log: what workers executed, and what people approved or rejected.

Lines are only ever added. Who may change them is a matter of the database's rights.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from sqlalchemy import insert, select

from cutover import effect
from effects.database import AuditRow
from effects.world import current


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, who did it and when; `at` is ISO 8601, `ok` None where nothing was executed.

    `outcome_unknown`: the action was begun, and the process was killed before its result came.
    """

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
    """Add a line."""
    async with current().database.engine.begin() as connection:
        await connection.execute(insert(AuditRow).values(**msgspec.structs.asdict(entry)))


async def entries(session_id: str) -> list[AuditEntry]:
    """Return a session's lines, the oldest first."""
    wanted = select(AuditRow.__table__).where(AuditRow.session_id == session_id)
    async with current().database.engine.connect() as connection:
        rows = (await connection.execute(wanted.order_by(AuditRow.seq))).mappings().all()
    names = AuditEntry.__struct_fields__
    return [AuditEntry(**{name: row[name] for name in names}) for row in rows]
