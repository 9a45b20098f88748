"""PostgreSQL: a pool of connections, tables brought up to date, errors as faults."""

from __future__ import annotations

import asyncio
import os
import re
import select
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeAlias, TypeVar

from contract.errors import EffectFailed, Fault, MissingExtra
from effects.circuit_breaker import OutageGuard
from effects.stores.tables import (
    CALL_SECONDS,
    CHECK_SECONDS,
    READ_VERSION,
    SCHEMA_VERSIONS,
    STORE_CODES,
    WRITE_VERSION,
    BoundStatement,
    FaultCodes,
    HealthCheck,
    Schema,
    StatementResult,
    Transaction,
    creation,
    version_health,
)

try:
    import psycopg
    from psycopg_pool import AsyncConnectionPool
except ImportError as missing:  # pragma: no cover (the extra is installed where tests run)
    raise MissingExtra(adapter="PostgreSQL", extra="postgres") from missing

if TYPE_CHECKING:
    from psycopg.abc import PQGen

Value = TypeVar("Value")

_CONNECTIONS = 8
_LEAST_CONNECT = 2
_PATIENCE = 2.0
"""How many times its limit a statement may take, the network's part included."""
# Any number: processes that start together must not all make the tables.
_MIGRATING = 5_230_917
_ANSWERS = (
    psycopg.errors.QueryCanceled,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
)
"""Errors that a server reports of one call: it answers others."""
_HERE = "PostgreSQL"  # an address may hold a password


class LimitedConnection(psycopg.AsyncConnection[Any]):
    """A connection that hangs up on a server which is silent for `patience` seconds.

    The server enforces a statement's limit. One that hangs, or whose network is gone, enforces
    nothing, and a call would wait for ever.
    """

    patience: float | None = None

    async def wait(self, gen: PQGen[Value], *more: Any, **named: Any) -> Value:
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
        """Whether the server has hung up, as at its restart: on an idle line it sends nothing."""
        if self.closed:
            return True
        line = select.poll()
        line.register(self, select.POLLIN)
        return bool(line.poll(0))

    def _hang_up(self) -> None:
        """Shut the line: the call that waits on it fails."""
        with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(self.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)


Pool: TypeAlias = AsyncConnectionPool[LimitedConnection]


class PostgresDatabase:
    """Connections to one database; made by `PostgresDatabase.open(dsn, schema)`.

    While the server does not answer, calls fail at once: see `OutageGuard`.
    """

    def __init__(
        self, pool: Pool, codes: FaultCodes, name: str, monotonic: Callable[[], float]
    ) -> None:
        self._pool = pool
        self._codes = codes
        self._outage = OutageGuard(name, self._probe, quiet=pool.timeout, monotonic=monotonic)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        dsn: str,
        schema: Schema | None = None,
        codes: FaultCodes = STORE_CODES,
        *,
        limit: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> AsyncIterator[PostgresDatabase]:
        """Connect and bring the tables up to date.

        `limit` is in seconds per wait and per statement, `CALL_SECONDS` if None. Raises
        `EffectFailed` with the code of what is unavailable where no server answers,
        `StoreNotOpened` where the tables are newer than the code.
        """
        seconds = CALL_SECONDS if limit is None else limit

        async def configure(connection: LimitedConnection) -> None:
            milliseconds = str(round(seconds * 1000))
            connection.patience = _PATIENCE * seconds
            await connection.execute(
                "SELECT set_config('statement_timeout', %s, false)", (milliseconds,)
            )

        pool: Pool = AsyncConnectionPool(
            dsn,
            min_size=1,
            max_size=_CONNECTIONS,
            timeout=seconds,
            open=False,
            configure=configure,
            connection_class=LimitedConnection,
            # The library would wait two minutes for a server that takes a connection and is
            # silent, and then longer and longer between two attempts, when it is long back.
            kwargs={"autocommit": True, "connect_timeout": max(_LEAST_CONNECT, round(seconds))},
            reconnect_timeout=seconds,
        )
        database = cls(pool, codes, schema.name if schema else _HERE, monotonic)
        try:
            with database._translated():
                await pool.open(wait=True, timeout=seconds)
            if schema is not None:
                await database.migrate(schema)
            yield database
        finally:
            await database.aclose()

    @property
    def fault(self) -> str | None:
        """Why the server is not called now; None while it answers."""
        return self._outage.fault

    async def execute(self, call: BoundStatement) -> StatementResult:
        """Execute one statement, committed at once; raises `EffectFailed`."""
        async with self.connection() as connection:
            return await execute(connection, call)

    async def transact(self, transaction: Transaction[Value]) -> Value:
        """Execute a transaction, all or nothing; raises `EffectFailed`."""
        async with self.connection() as connection, connection.transaction():
            return await drive(connection, transaction)

    async def snapshot(self, transaction: Transaction[Value]) -> Value:
        """Execute a transaction that reads one state, whatever is written meanwhile."""
        async with self.connection() as connection, connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            return await drive(connection, transaction)

    async def erase(self, transaction: Transaction[Value]) -> Value:
        """Execute a transaction that deletes; the space is free after a vacuum."""
        return await self.transact(transaction)

    def connection(self) -> AbstractAsyncContextManager[LimitedConnection]:
        """Lend a connection that commits each statement; raises `EffectFailed`."""
        if self._outage.fault is not None:
            raise EffectFailed(Fault(self._codes.unavailable, retryable=True))
        return self._lend()

    async def migrate(self, schema: Schema) -> None:
        """Bring a store's tables up to date, all or nothing, one process after the other.

        Raises `StoreNotOpened` where they are newer than the code.
        """
        async with self.migrating() as connection:
            rows = (await execute(connection, READ_VERSION(store=schema.name))).rows
            for statement in schema.due(_HERE, "postgresql", rows[0][0] if rows else 0):
                await connection.execute(statement.encode())
            await execute(connection, WRITE_VERSION(store=schema.name, version=schema.version))

    @asynccontextmanager
    async def migrating(self) -> AsyncIterator[LimitedConnection]:
        """Lend a connection to the one process that may change tables now."""
        async with self.connection() as connection, connection.transaction():
            # What changes tables may take longer than a call, and so does waiting for it.
            patience, connection.patience = connection.patience, None
            try:
                await connection.execute("SET LOCAL statement_timeout = 0")
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
                for statement in creation(SCHEMA_VERSIONS, "postgresql", if_not_exists=True):
                    await connection.execute(statement.encode())
                yield connection
            finally:
                connection.patience = patience

    async def aclose(self) -> None:
        """Close the connections; idempotent."""
        await self._outage.aclose()
        await self._pool.close()

    @asynccontextmanager
    async def _lend(self) -> AsyncIterator[LimitedConnection]:
        with self._translated():
            while (connection := await self._pool.getconn()).hung_up:
                await connection.close()
                await self._pool.putconn(connection)
            try:
                async with connection:
                    yield connection
            finally:
                await self._pool.putconn(connection)

    async def _probe(self) -> None:
        async with self._lend() as connection:
            await connection.execute("SELECT 1")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn the library's errors into faults; SQLSTATE is a code, never text."""
        codes, outage = self._codes, self._outage
        try:
            yield
            outage.answered()
        except (psycopg.OperationalError, psycopg.InterfaceError) as failure:
            if isinstance(failure, _ANSWERS):
                outage.answered()  # that it gave up a statement, or a deadlock
            else:
                outage.silent(codes.unavailable)
            raise EffectFailed(Fault(codes.unavailable, retryable=True)) from failure
        except psycopg.Error as failure:
            outage.answered()
            fault = Fault(codes.failed, data={"sqlstate": failure.sqlstate})
            raise EffectFailed(fault) from failure


async def execute(
    connection: psycopg.AsyncConnection[Any], call: BoundStatement
) -> StatementResult:
    """Execute a statement on a connection; raises what the library raises."""
    text, constants = call.statement.postgresql
    cursor = await connection.execute(text, {**constants, **call.values})
    return StatementResult(await cursor.fetchall() if cursor.description else (), cursor.rowcount)


async def drive(connection: psycopg.AsyncConnection[Any], steps: Transaction[Value]) -> Value:
    """Execute the statements of a transaction on a connection."""
    with closing(steps):
        try:
            call = next(steps)
            while True:
                call = steps.send(await execute(connection, call))
        except StopIteration as end:
            value: Value = end.value
            return value


async def attempt(connection: LimitedConnection, statement: LiteralString) -> bool:
    """Execute a statement inside a transaction, which goes on where it fails; returns whether."""
    try:
        async with connection.transaction():
            await connection.execute(statement)
    except psycopg.Error:
        return False
    return True


_REFUSALS: Final = {
    "password authentication failed": "its password is refused",
    "no password supplied": "it asks for a password, and the address has none",
    "pg_hba.conf": "it accepts no connections from this host",
    'database ".*" does not exist': "it has no such database",
    'role ".*" does not exist': "it has no such role",
    "permission denied for database": "its role may not use the database",
    "not permitted to log in": "its role may not log in",
    "does not support SSL": "it speaks no TLS, which the address asks for",
    "starting up": "it is starting up",
    "too many|connection slots": "it has no connection left",
}
"""What the server answers, in part, and what it means: its own text names roles and hosts."""

_STATE = """
SELECT pg_is_in_recovery(), current_schema() IS NOT NULL, to_regclass('schema_versions') IS NOT NULL
"""
_MAY_CREATE = "SELECT has_schema_privilege(current_schema(), 'CREATE')"


async def check_database(dsn: str, schema: Schema | None) -> HealthCheck | None:
    """Check whether a store could be opened there; nothing is made. None without any answer."""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            connection = await psycopg.AsyncConnection.connect(
                dsn, autocommit=True, connect_timeout=round(CHECK_SECONDS)
            )
            async with connection:
                return await _check(connection, schema)
    except psycopg.errors.InsufficientPrivilege:
        return HealthCheck(ok=False, detail="its role may not read the tables")
    except (psycopg.OperationalError, TimeoutError) as failure:
        return _refusal(str(failure))
    except psycopg.Error as failure:
        return HealthCheck(ok=False, detail=f"it cannot be read ({type(failure).__name__})")


async def _check(connection: psycopg.AsyncConnection[Any], schema: Schema | None) -> HealthCheck:
    standby, schema_exists, versioned = await _row(connection, _STATE)
    if standby:
        return HealthCheck(ok=False, detail="it is a standby: nothing can be written")
    if not schema_exists:
        return HealthCheck(ok=False, detail="none of the schemas to look in is there")
    if schema is None:
        return version_health(0, 0)
    version = 0
    if versioned:
        rows = (await execute(connection, READ_VERSION(store=schema.name))).rows
        version = rows[0][0] if rows else 0
    if version < schema.version and not (await _row(connection, _MAY_CREATE))[0]:
        return HealthCheck(ok=False, detail="its role may not make the tables that are due")
    return version_health(version, schema.version)


async def _row(connection: psycopg.AsyncConnection[Any], query: LiteralString) -> tuple[Any, ...]:
    row = await (await connection.execute(query)).fetchone()
    return row or ()


def _refusal(answer: str) -> HealthCheck | None:
    """Explain why a server refused the connection; None where it did not answer."""
    known = (meaning for pattern, meaning in _REFUSALS.items() if re.search(pattern, answer))
    detail = next(known, "it refuses connections" if "FATAL" in answer else "")
    return HealthCheck(ok=False, detail=detail) if detail else None
