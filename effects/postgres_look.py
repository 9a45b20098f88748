"""Looking into a PostgreSQL: whether a store could be opened there, and if not, why not."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from effects.extras import MissingExtra
from effects.looks import LOOK_SECONDS, Look, standing

try:
    import psycopg
except ImportError as missing:  # pragma: no cover (the extra is installed where tests run)
    raise MissingExtra(adapter="PostgreSQL", extra="postgres") from missing

_REFUSALS: Final = {
    "password authentication failed": "its password is refused",
    "no password supplied": "it asks for a password, and the address has none",
    "pg_hba.conf": "it lets nobody in from here",
    'database ".*" does not exist': "it has no such database",
    'role ".*" does not exist': "it has no such role",
    "permission denied for database": "its role may not use the database",
    "not permitted to log in": "its role may not log in",
    "does not support SSL": "it speaks no TLS, which the address asks for",
    "starting up": "it is starting up",
    "too many|connection slots": "it has no connection left",
}
"""What the server says, in part, and what it means: its text names whom it has refused."""

_STATE = """
SELECT pg_is_in_recovery(), current_schema() IS NOT NULL, to_regclass('schema_versions') IS NOT NULL
"""
_VERSION = "SELECT version FROM schema_versions WHERE store = %s"
_MAY_MAKE = "SELECT has_schema_privilege(current_schema(), 'CREATE')"


async def look_into_database(dsn: str, store: str, known: int) -> Look | None:
    """Look; None where nobody was there to say anything. `known` is 0 for no version."""
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            connection = await psycopg.AsyncConnection.connect(
                dsn, autocommit=True, connect_timeout=round(LOOK_SECONDS)
            )
            async with connection:
                return await _look(connection, store, known)
    except psycopg.errors.InsufficientPrivilege:
        return Look(good=False, said="its role may not read the tables")
    except (psycopg.OperationalError, TimeoutError) as failure:
        return _refused(str(failure))
    except psycopg.Error as failure:
        return Look(good=False, said=f"it cannot be read ({type(failure).__name__})")


async def _look(connection: psycopg.AsyncConnection, store: str, known: int) -> Look:
    standby, home, versioned = await _row(connection, _STATE)
    if standby:
        return Look(good=False, said="it is a standby: nothing can be written")
    if not home:
        return Look(good=False, said="none of the schemas to look in is there")
    version = 0
    if versioned and known:
        found = await (await connection.execute(_VERSION, (store,))).fetchone()
        version = found[0] if found else 0
    if version < known and not (await _row(connection, _MAY_MAKE))[0]:
        return Look(good=False, said="its role may not make the tables that are due")
    return standing(version, known) if known else Look(good=True, said="opened")


async def _row(connection: psycopg.AsyncConnection, query: str) -> tuple[object, ...]:
    row = await (await connection.execute(query.encode())).fetchone()
    return row or ()


def _refused(told: str) -> Look | None:
    """Say why a server let nobody in."""
    known = (said for pattern, said in _REFUSALS.items() if re.search(pattern, told))
    said = next(known, "it refuses connections" if "FATAL" in told else "")
    return Look(good=False, said=said) if said else None
