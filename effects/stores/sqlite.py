"""An SQLite file as an asynchronous database: one thread, one connection, one hop a call.

Several stores may share a file. One that is removed or replaced while it is open is opened anew.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock, lockf
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Final, TypeAlias, TypeVar, TypeVarTuple

from contract.errors import EffectFailed, Fault
from effects.stores.tables import (
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
    StoreNotOpened,
    Transaction,
    creation,
    version_health,
)

Value = TypeVar("Value")
Args = TypeVarTuple("Args")

log = logging.getLogger(__name__)

BUSY_MS = 5_000
_LEAST_MS = 10
"""What a call still waits for another writer once its turn has come too late."""

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


class SqliteDatabase:
    """One store's connection to an SQLite file, made by `SqliteDatabase.open(path, schema)`.

    `codes` are those of the faults its calls raise.
    """

    fault: None = None
    """A file is never skipped, as a server that does not answer is."""

    def __init__(self, path: str | Path, schema: Schema, codes: FaultCodes, busy_ms: int) -> None:
        self._path = path
        self._schema = schema
        self._codes = codes
        self._busy_ms = busy_ms
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"sqlite {schema.name}")
        self._place: _Place | None = None
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        place: str | Path,
        schema: Schema,
        codes: FaultCodes = STORE_CODES,
        *,
        busy_ms: int = BUSY_MS,
    ) -> AsyncIterator[SqliteDatabase]:
        """Open a path or `sqlite:///` address, and bring the store's tables up to date.

        A file, and the folder of an address, are made where there is none. `busy_ms` is how long a
        call waits in all, for its turn and for another writer. Raises `StoreNotOpened`.
        """
        path = sqlite_file(place)
        if path != Path(place):
            path.parent.mkdir(parents=True, exist_ok=True)
        database = cls(path, schema, codes, busy_ms)
        try:
            try:
                await asyncio.get_running_loop().run_in_executor(database._thread, database._open)
            except (sqlite3.Error, OSError, ValueError) as failure:
                raise StoreNotOpened(path, str(failure)) from failure
            yield database
        finally:
            await database.aclose()

    async def execute(self, call: BoundStatement) -> StatementResult:
        """Execute one statement, committed at once; raises `EffectFailed`."""
        return await self.run(_execute, call)

    async def transact(self, transaction: Transaction[Value]) -> Value:
        """Execute a transaction, all or nothing; raises `EffectFailed`."""
        return await self.run(_transact, transaction)

    async def snapshot(self, transaction: Transaction[Value]) -> Value:
        """Execute a transaction that reads one state, and waits for no writer."""
        return await self.run(_read, transaction)

    async def erase(self, transaction: Transaction[Value]) -> Value:
        """Execute a transaction that deletes, and leave nothing of it in the file's log.

        While another connection reads, the log keeps it until it is written anew.
        """
        return await self.run(_erase, transaction)

    async def run(self, work: Callable[[sqlite3.Connection, *Args], Value], *args: *Args) -> Value:
        """Do `work(connection, *args)` in the database's thread; raises `EffectFailed`."""
        if self._closed:
            raise EffectFailed(Fault(self._codes.unavailable, data={"reason": "closed"}))
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._do, monotonic(), work, *args)
        except sqlite3.Error as failure:
            raise EffectFailed(self._fault(failure)) from failure
        except StoreNotOpened as failure:
            raise EffectFailed(Fault(self._codes.unavailable, data={"reason": "file"})) from failure
        except (UnicodeError, OverflowError) as failure:
            raise EffectFailed(Fault(self._codes.failed, data={"reason": "value"})) from failure

    async def aclose(self) -> None:
        """Finish what is queued, then close; idempotent."""
        closed, self._closed = self._closed, True
        try:
            if not closed:
                await asyncio.shield(asyncio.wrap_future(self._thread.submit(self._close)))
        finally:
            self._thread.shutdown(wait=False)  # it ends with what is queued

    def _do(
        self, called: float, work: Callable[[sqlite3.Connection, *Args], Value], *args: *Args
    ) -> Value:
        connection, place = self._connection, self._place
        if connection is None or place is None:
            connection = self._open()
        elif place.lost():
            connection = self._reopen(connection, place)
        left = self._busy_ms - int((monotonic() - called) * 1_000)
        if left > self._busy_ms // 2:
            return work(connection, *args)
        # Calls before it waited for another writer: if each waited again, the last would hang.
        _set_busy_timeout(connection, min(self._busy_ms, max(left, _LEAST_MS)))
        try:
            return work(connection, *args)
        finally:
            _set_busy_timeout(connection, self._busy_ms)

    def _reopen(self, connection: sqlite3.Connection, place: _Place) -> sqlite3.Connection:
        """Open the file that is there now, after closing the one that was lost."""
        log.error(
            "%s was removed or replaced while it was open: for %s what is there now is used",
            self._path,
            self._schema.name,
        )
        # Closed whole, wherever it is by now, and with no log left behind.
        with _OPENING, place.exclusive() as alone:
            if alone:
                with suppress(sqlite3.Error):
                    _truncate_log(connection)
                place.remove_log()
        self._close()
        return self._open()

    def _open(self) -> sqlite3.Connection:
        with _OPENING:
            self._connection = self._connect()
            self._place = _Place(self._path)
            return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._place is not None:
            connection.close()
            self._place.closed()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_MS / 1000, isolation_level=None)
        try:
            # What is deleted or written over is personal: free pages must not keep it.
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            # KiB of pages. The kernel has the file, too: measured, more makes no call quicker.
            connection.execute("PRAGMA cache_size = -512")
            with transaction(connection):
                self._migrate(connection)
            # Only now: bringing tables up to date may wait longer than a call.
            _set_busy_timeout(connection, self._busy_ms)
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        schema = self._schema
        for statement in creation(SCHEMA_VERSIONS, "sqlite", if_not_exists=True):
            connection.execute(statement)
        rows = _execute(connection, READ_VERSION(store=schema.name)).rows
        for statement in schema.due(self._path, "sqlite", rows[0][0] if rows else 0):
            connection.execute(statement)
        _execute(connection, WRITE_VERSION(store=schema.name, version=schema.version))

    def _fault(self, failure: sqlite3.Error) -> Fault:
        # Errors of Python's own module, for wrong use of it, carry no code of SQLite's.
        code: int = getattr(failure, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code & _PRIMARY in _UNAVAILABLE:
            return Fault(self._codes.unavailable, retryable=True, data={"sqlite": code})
        return Fault(self._codes.failed, data={"sqlite": code})


def _execute(connection: sqlite3.Connection, call: BoundStatement) -> StatementResult:
    text, constants = call.statement.sqlite
    cursor = connection.execute(text, {**constants, **call.values} if constants else call.values)
    return StatementResult(cursor.fetchall(), cursor.rowcount)


def drive(connection: sqlite3.Connection, steps: Transaction[Value]) -> Value:
    """Execute the statements of a transaction on a connection."""
    with closing(steps):
        try:
            call = next(steps)
            while True:
                call = steps.send(_execute(connection, call))
        except StopIteration as end:
            value: Value = end.value
            return value


def _transact(connection: sqlite3.Connection, steps: Transaction[Value]) -> Value:
    with transaction(connection):
        return drive(connection, steps)


def _read(connection: sqlite3.Connection, steps: Transaction[Value]) -> Value:
    connection.execute("BEGIN")
    try:
        return drive(connection, steps)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _erase(connection: sqlite3.Connection, steps: Transaction[Value]) -> Value:
    value = _transact(connection, steps)
    _truncate_log(connection)
    return value


def _truncate_log(connection: sqlite3.Connection) -> None:
    """Move the log into the file and empty it, as far as no other connection reads."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _set_busy_timeout(connection: sqlite3.Connection, ms: int) -> None:
    connection.execute(f"PRAGMA busy_timeout = {ms:d}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write all or nothing; takes the write lock at once, so it cannot fail half-way for it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some errors, a full disk among them, end it themselves
            connection.execute("ROLLBACK")
        raise


def sqlite_file(place: str | Path) -> Path:
    """Return the path of `sqlite:///relative` or `sqlite:////absolute`, or the path itself."""
    _, scheme, rest = str(place).rpartition("sqlite://")
    return Path(rest.removeprefix("/")) if scheme else Path(place)


def read_only(path: Path) -> sqlite3.Connection:
    """Open a file for reading, and make nothing beside it."""
    # While no connection is open there is no log beside the file, and reading would make one.
    beside = all(path.with_name(f"{path.name}-{part}").exists() for part in ("wal", "shm"))
    uri = f"{path.absolute().as_uri()}?mode=ro" + ("" if beside else "&immutable=1")
    return sqlite3.connect(uri, timeout=CHECK_SECONDS, uri=True)


def check_file(path: Path, schema: Schema | None) -> HealthCheck:
    """Check whether a store could be opened in an existing file; nothing is made or changed."""
    version = 0
    try:
        with closing(read_only(path)) as file:
            tables = "SELECT count(*) FROM sqlite_master WHERE name = 'schema_versions'"
            (versioned,) = file.execute(tables).fetchone()
            if versioned and schema:
                rows = _execute(file, READ_VERSION(store=schema.name)).rows
                version = rows[0][0] if rows else 0
    except sqlite3.OperationalError:
        return HealthCheck(ok=False, detail="the file cannot be opened")
    except sqlite3.DatabaseError:
        return HealthCheck(ok=False, detail="the file is no SQLite database")
    return version_health(version, schema.version if schema else 0)


_Identity: TypeAlias = tuple[int, int] | None

LOOK_S = 1.0
"""Seconds between two looks at the path: writes in between may go with a file that was removed."""
_OPENING: Final = Lock()
"""Held while a file is opened or left: POSIX drops a process's locks on it with any of its
descriptors."""
_open_files: Final = Counter[_Identity]()
"""The files this process has open."""

_SHARED_FIRST: Final = 0x40000002
_SHARED_SIZE: Final = 510
"""The bytes of a file on which SQLite holds a lock for every connection."""


class _Place:
    """Where a file has just been opened; one that was never there (`:memory:`) is never lost."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        # A link may lead elsewhere later on: the log is beside the file itself.
        self._file = Path(os.path.realpath(self._path))
        self._log, self._index = Path(f"{self._file}-wal"), Path(f"{self._file}-shm")
        self._file_id, self._log_id = _identity(self._file), _identity(self._log)
        self._index_id = _identity(self._index)
        self._next_look = monotonic() + LOOK_S
        _open_files[self._file_id] += 1

    def closed(self) -> None:
        """Note that it is closed."""
        _open_files[self._file_id] -= 1

    def lost(self) -> bool:
        """Whether another file is there by now, or none; looks once a second."""
        if (now := monotonic()) < self._next_look:
            return False
        self._next_look = now + LOOK_S
        return self._file_id is not None and _identity(self._path) != self._file_id

    @contextmanager
    def exclusive(self) -> Iterator[bool]:
        """Keep others out of the file that is there now; False where one has it open already.

        It may have taken the old log for its own, or share the old index with us: to empty or
        remove those is to lose what it has written. Hold `_OPENING`.
        """
        now = _identity(self._file)
        if now is None or _identity(self._index) != self._index_id:
            yield True
            return
        if _open_files[now]:
            yield False
            return
        with _locked(self._file) as alone:
            yield alone

    def remove_log(self) -> None:
        """Remove the log of the file that was lost: it would be read into the one there now.

        Several processes may do so at once: each locks the old log, so none removes a new one.
        Call it while the lost file is still open: until then no other gets its number.
        """
        if _identity(self._file) == self._file_id:
            return  # it is back
        with suppress(OSError), self._log.open("rb") as file:
            flock(file, LOCK_EX)
            if self._log_id is not None and _identity(self._log) == self._log_id:
                self._log.unlink()
                self._index.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Lock a file as SQLite would to have it alone; False where that cannot be."""
    try:
        file = path.open("r+b")
    except OSError:
        yield False
        return
    with file:
        try:
            lockf(file, LOCK_EX | LOCK_NB, _SHARED_SIZE, _SHARED_FIRST)
        except OSError:
            yield False
        else:
            yield True


def _identity(path: Path) -> _Identity:
    try:
        found = os.stat(path)  # noqa: PTH116 - four times as fast
    except OSError:
        return None
    return found.st_dev, found.st_ino
