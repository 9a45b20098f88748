"""Databases of tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import msgspec
import psycopg
from sqlalchemy import select

from effects.database import AuditRow
from effects.workers.audit import AuditEntry
from effects.world import current
from tests.conftest import reachable

POSTGRES = "host=/var/run/postgresql"


@contextmanager
def postgresql() -> Iterator[str]:
    """Yield the URL of an empty schema in PostgreSQL, which is dropped at the end."""
    schema = f"cutover_{uuid4().hex}"
    try:
        connection = psycopg.connect(POSTGRES, autocommit=True)
    except psycopg.OperationalError:
        reachable("PostgreSQL", ok=False)
        raise
    with connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        yield f"postgresql+psycopg:///?{POSTGRES}&options=-csearch_path%3D{schema}"
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


async def audit_lines(session_id: str) -> list[AuditEntry]:
    """Return a session's lines of the audit log, the oldest first."""
    wanted = select(AuditRow.__table__).where(AuditRow.session_id == session_id)
    async with current().database.engine.connect() as connection:
        rows = (await connection.execute(wanted.order_by(AuditRow.seq))).mappings().all()
    return [msgspec.convert(row, AuditEntry) for row in rows]
