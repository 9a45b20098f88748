"""PostgreSQL as a neighbour: a pool of connections, tables kept up to date, errors as faults."""

from __future__ import annotations

import asyncio
import os
import re
import select
import socket
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeAlias, TypeVar

from contract.errors import EffectFailed, Fault
from effects.extras import MissingExtra
from effects.spared import Spared
from effects.stores.health import CHECK_SECONDS, HealthCheck, version_health
from effects.stores.tables import due

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from psycopg.abc import PQGen

    from effects.stores.values import Codes


try:
    import psycopg
    from psycopg.rows import class_row
    from psycopg_pool import AsyncConnectionPool
except ImportError as missing:  # pragma: no cover (the extra is installed where tests run)
    raise MissingExtra(adapter="PostgreSQL", extra="postgres") from missing


Result = TypeVar("Result")


class Connection(psycopg.AsyncConnection[Any]):
    """A connection that hangs up on a server which says nothing for `patience` seconds.

    What limits a statement is the server's to watch: one that hangs, or whose network is gone,
    watches nothing, and whoever waits for it would wait for ever.
    """

    patience: float | None = None

    async def wait(self, gen: PQGen[Result], *more: Any, **named: Any) -> Result:
        """Wait for an answer; raises `psycopg.OperationalError` where none comes."""
        if self.patience is None:
            return await super().wait(gen, *more, **named)
        given_up = asyncio.get_running_loop().call_later(self.patience, self._hang_up)
        try:
            return await super().wait(gen, *more, **named)
        finally:
            given_up.cancel()

    @property
    def hung_up(self) -> bool:
        """Whether the server has hung up, at its restart say: on an idle line it says no more."""
        if self.closed:
            return True
        line = select.poll()
        line.register(self, select.POLLIN)
        return bool(line.poll(0))

    def _hang_up(self) -> None:
        """Shut the line: whoever waits on it is told that it is closed."""
        with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(self.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)


Pool: TypeAlias = AsyncConnectionPool[Connection]
Row = TypeVar("Row")
_LEAST_CONNECT = 2
_PATIENCE = 2.0
"""How many times its limit a statement may take, the network's part included."""
Steps: TypeAlias = tuple[tuple[LiteralString, ...], ...]
"""For every version of a store's tables, the statements that lead there from the one before."""

# Any number: processes that start together must not all make the tables.
_MIGRATING = 5_230_917
_HERE = "PostgreSQL"  # an address may hold a password
_VERSIONS = (
    "CREATE TABLE IF NOT EXISTS schema_versions (store text PRIMARY KEY, version integer NOT NULL)"
)
_VERSION = "SELECT version FROM schema_versions WHERE store = %s"
_REACHED = (
    "INSERT INTO schema_versions VALUES (%s, %s) "
    "ON CONFLICT (store) DO UPDATE SET version = excluded.version"
)


class PostgresPool:
    """Connections to one database; made by `PostgresPool.open(dsn, codes)`.

    A server that says nothing is spared: one call finds out, those after it fail at once.
    """

    def __init__(self, pool: Pool, codes: Codes, name: str, monotonic: Callable[[], float]) -> None:
        self._pool = pool
        self._codes = codes
        self._spared = Spared(name, self._speak, quiet=pool.timeout, monotonic=monotonic)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        dsn: str,
        codes: Codes,
        *,
        name: str = "PostgreSQL",
        connections: int = 8,
        limit: float = 5.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> AsyncIterator[PostgresPool]:
        """Connect; `limit` in seconds per wait and per statement, `name` what the log calls it.

        Raises `EffectFailed` with the code of what is unavailable where no server answers.
        """

        async def configure(connection: Connection) -> None:
            milliseconds = str(round(limit * 1000))
            connection.patience = _PATIENCE * limit
            await connection.execute(
                "SELECT set_config('statement_timeout', %s, false)", (milliseconds,)
            )

        pool: Pool = AsyncConnectionPool(
            dsn,
            min_size=1,
            max_size=connections,
            timeout=limit,
            open=False,
            configure=configure,
            connection_class=Connection,
            # The library would wait two minutes for a server that takes a connection and is
            # silent, and then longer and longer between two attempts, when it is long back.
            kwargs={"autocommit": True, "connect_timeout": max(_LEAST_CONNECT, round(limit))},
            reconnect_timeout=limit,
        )
        opened = cls(pool, codes, name, monotonic)
        try:
            with opened._translated():
                await pool.open(wait=True, timeout=limit)
            yield opened
        finally:
            await opened.aclose()

    @property
    def fault(self) -> str | None:
        """Why nobody waits for the server now; None where it answers."""
        return self._spared.fault

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """Lend a connection that commits each statement; raises `EffectFailed`."""
        if self._spared.fault is not None:
            raise EffectFailed(Fault(self._codes.unavailable, retryable=True))
        return self._lending()

    @asynccontextmanager
    async def _lending(self) -> AsyncIterator[Connection]:
        with self._translated():
            connection = await self._lent()
            try:
                async with connection:
                    yield connection
            finally:
                await self._pool.putconn(connection)

    async def _speak(self) -> None:
        """Find out whether the server answers."""
        async with self._lending() as connection:
            await connection.execute("SELECT 1")

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Lend a connection that commits all or nothing; raises `EffectFailed`."""
        async with self.connection() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """Lend a connection that reads one state, whatever is written meanwhile."""
        async with self.transaction() as connection:
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield connection

    async def read(
        self, kind: type[Row], query: LiteralString, values: Sequence[object] | Mapping[str, object]
    ) -> list[Row]:
        """Read rows as values of one kind; raises `EffectFailed`."""
        async with self.connection() as connection:
            cursor = connection.cursor(row_factory=class_row(kind))
            return await (await cursor.execute(query, values)).fetchall()

    async def migrate(self, store: str, steps: Steps) -> None:
        """Bring a store's tables up to date, all or nothing, one process after the other.

        Raises `StoreNotOpened` where they are newer than the code.
        """
        async with self.migrating() as connection:
            row = await (await connection.execute(_VERSION, (store,))).fetchone()
            for statement in due(_HERE, store, row[0] if row else 0, steps):
                await connection.execute(statement)
            await connection.execute(_REACHED, (store, len(steps)))

    @asynccontextmanager
    async def migrating(self) -> AsyncIterator[Connection]:
        """Lend a connection to the one process that may change tables now."""
        async with self.transaction() as connection:
            # What changes tables may take longer than a call, and so does waiting for it.
            patience, connection.patience = connection.patience, None
            try:
                await connection.execute("SET LOCAL statement_timeout = 0")
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
                await connection.execute(_VERSIONS)
                yield connection
            finally:
                connection.patience = patience

    async def aclose(self) -> None:
        """Close the connections; idempotent."""
        await self._spared.aclose()
        await self._pool.close()

    async def _lent(self) -> Connection:
        while (connection := await self._pool.getconn()).hung_up:
            await connection.close()
            await self._pool.putconn(connection)
        return connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn the library's errors into faults; SQLSTATE is a code, never text."""
        codes, spared = self._codes, self._spared
        try:
            yield
            spared.answered()
        except (psycopg.OperationalError, psycopg.InterfaceError) as failure:
            if isinstance(failure, psycopg.errors.QueryCanceled):
                spared.answered()  # that it gave up a statement
            else:
                spared.silent(codes.unavailable)
            raise EffectFailed(Fault(codes.unavailable, retryable=True)) from failure
        except psycopg.Error as failure:
            spared.answered()
            fault = Fault(codes.failed, data={"sqlstate": failure.sqlstate})
            raise EffectFailed(fault) from failure


async def attempted(connection: Connection, statement: LiteralString) -> bool:
    """Execute a statement inside a transaction, which goes on where it fails; tells which."""
    try:
        async with connection.transaction():
            await connection.execute(statement)
    except psycopg.Error:
        return False
    return True


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
_STORED_VERSION = "SELECT version FROM schema_versions WHERE store = %s"
_MAY_MAKE = "SELECT has_schema_privilege(current_schema(), 'CREATE')"


async def check_database(dsn: str, store: str, known: int) -> HealthCheck | None:
    """Look; None where nobody was there to say anything. `known` is 0 for no version."""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            connection = await psycopg.AsyncConnection.connect(
                dsn, autocommit=True, connect_timeout=round(CHECK_SECONDS)
            )
            async with connection:
                return await _look(connection, store, known)
    except psycopg.errors.InsufficientPrivilege:
        return HealthCheck(ok=False, detail="its role may not read the tables")
    except (psycopg.OperationalError, TimeoutError) as failure:
        return _refused(str(failure))
    except psycopg.Error as failure:
        return HealthCheck(ok=False, detail=f"it cannot be read ({type(failure).__name__})")


async def _look(connection: psycopg.AsyncConnection, store: str, known: int) -> HealthCheck:
    standby, home, versioned = await _row(connection, _STATE)
    if standby:
        return HealthCheck(ok=False, detail="it is a standby: nothing can be written")
    if not home:
        return HealthCheck(ok=False, detail="none of the schemas to look in is there")
    version = 0
    if versioned and known:
        found = await (await connection.execute(_STORED_VERSION, (store,))).fetchone()
        version = found[0] if found else 0
    if version < known and not (await _row(connection, _MAY_MAKE))[0]:
        return HealthCheck(ok=False, detail="its role may not make the tables that are due")
    return version_health(version, known) if known else HealthCheck(ok=True, detail="opened")


async def _row(connection: psycopg.AsyncConnection, query: str) -> tuple[object, ...]:
    row = await (await connection.execute(query.encode())).fetchone()
    return row or ()


def _refused(told: str) -> HealthCheck | None:
    """Say why a server let nobody in."""
    known = (said for pattern, said in _REFUSALS.items() if re.search(pattern, told))
    said = next(known, "it refuses connections" if "FATAL" in told else "")
    return HealthCheck(ok=False, detail=said) if said else None
