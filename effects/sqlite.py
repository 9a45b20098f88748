"""An SQLite file as an asynchronous neighbour: one thread, one connection, one hop a call."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from contract.errors import EffectFailed
from contract.faults import Fault
from effects.codes import STORE_CODES, Codes
from effects.migrations import StoreNotOpened, due

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from pathlib import Path

    from effects.migrations import Migrations

Result = TypeVar("Result")
Args = TypeVarTuple("Args")

BUSY_MS = 5_000

_UNAVAILABLE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)
_PRIMARY = 0xFF  # an extended result code carries the primary one in its low byte

_VERSIONS = (
    "CREATE TABLE IF NOT EXISTS schema_versions (store TEXT PRIMARY KEY, version INTEGER NOT NULL)"
)


class SqliteFile:
    """One store's connection to an SQLite file, made by `SqliteFile.open(store, path, …)`.

    Several stores may share a file. `codes` are those of the faults that come out of `run`.
    """

    def __init__(self, store: str, codes: Codes) -> None:
        self._codes = codes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"sqlite {store}")
        self._store = store
        self._connection: sqlite3.Connection | None = None

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        store: str,
        path: str | Path,
        migrations: Migrations,
        codes: Codes = STORE_CODES,
        *,
        busy_ms: int = BUSY_MS,
    ) -> AsyncIterator[SqliteFile]:
        """Connect, making the file where there is none, and bring the store's tables up to date.

        `busy_ms` is how long a call waits for another writer. Raises `StoreNotOpened`.
        """
        file = cls(store, codes)
        try:
            await file._connect(path, migrations, busy_ms)
            yield file
        finally:
            await file.aclose()

    async def run(
        self, work: Callable[[sqlite3.Connection, *Args], Result], *args: *Args
    ) -> Result:
        """Do `work(connection, *args)` in the store's thread; raises `EffectFailed`."""
        if self._connection is None:
            raise EffectFailed(Fault(self._codes.unavailable, data={"reason": "closed"}))
        try:
            return await self._hop(work, self._connection, *args)
        except sqlite3.Error as failure:
            raise EffectFailed(self._fault(failure)) from failure
        except (UnicodeError, OverflowError) as failure:
            raise EffectFailed(Fault(self._codes.failed, data={"reason": "value"})) from failure

    async def aclose(self) -> None:
        """Finish what is queued, then close; idempotent."""
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                await asyncio.shield(self._hop(connection.close))
        finally:
            self._thread.shutdown(wait=False)  # ends with what is queued, whoever waits for it

    async def _connect(self, path: str | Path, migrations: Migrations, busy_ms: int) -> None:
        try:
            await self._hop(self._open, path, migrations)
            await self._hop(self._limit, busy_ms)
        except (sqlite3.Error, OSError, ValueError) as failure:
            raise StoreNotOpened(path, str(failure)) from failure

    def _hop(self, work: Callable[[*Args], Result], *args: *Args) -> asyncio.Future[Result]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def _open(self, path: str | Path, migrations: Migrations) -> None:
        connection = sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None)
        self._connection = connection
        # Also what is written over was said by somebody: nothing of it stays in free pages.
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        with transaction(connection):
            connection.execute(_VERSIONS)
            self._migrate(connection, path, migrations)

    def _limit(self, busy_ms: int) -> None:
        # After the opening: bringing tables up to date may wait longer than a call.
        if self._connection is not None:
            self._connection.execute(f"PRAGMA busy_timeout = {busy_ms:d}")

    def _migrate(
        self, connection: sqlite3.Connection, path: str | Path, migrations: Migrations
    ) -> None:
        row = connection.execute(
            "SELECT version FROM schema_versions WHERE store = ?", (self._store,)
        ).fetchone()
        execute_all(connection, due(path, self._store, row[0] if row else 0, migrations))
        connection.execute(
            "INSERT INTO schema_versions VALUES (?, ?) "
            "ON CONFLICT (store) DO UPDATE SET version = excluded.version",
            (self._store, len(migrations)),
        )

    def _fault(self, failure: sqlite3.Error) -> Fault:
        # Python's own complaints (wrong use of the module) carry no code of SQLite's.
        code: int = getattr(failure, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code & _PRIMARY in _UNAVAILABLE:
            return Fault(self._codes.unavailable, retryable=True, data={"sqlite": code})
        return Fault(self._codes.failed, data={"sqlite": code})


def execute_all(connection: sqlite3.Connection, statements: Sequence[str]) -> None:
    """Execute statements one by one, inside the transaction that is open."""
    for statement in statements:
        connection.execute(statement)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write all or nothing; takes the write lock at once, so it cannot fail half-way for it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some errors, a full disk's among them, end it themselves
            connection.execute("ROLLBACK")
        raise


@contextmanager
def reading(connection: sqlite3.Connection) -> Iterator[None]:
    """Read several times of one state; writes nothing, and waits for no writer."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def erasing(connection: sqlite3.Connection) -> Iterator[None]:
    """Delete all or nothing, and leave nothing of it in the file's log.

    Where somebody reads at that moment, the log keeps it until it is written anew.
    """
    with transaction(connection):
        yield
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
