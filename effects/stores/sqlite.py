"""The place of an SQLite file: whether what stands there is still the file that is open."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock, lockf
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, TypeVarTuple

from contract.errors import EffectFailed, Fault
from effects.stores.tables import StoreNotOpened, due
from effects.stores.values import STORE_CODES, Codes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from effects.stores.tables import Migrations


Identity: TypeAlias = tuple[int, int] | None

LOOK_S = 1.0
"""Seconds between two looks: what is written in between may go with a file that was removed."""
MOVING: Final = Lock()
"""Held while a store opens its file or leaves it: see what is said of `_open`."""

_SHARED_FIRST: Final = 0x40000002
_SHARED_SIZE: Final = 510
"""The bytes of a file that everybody who has it open holds a lock on, as SQLite does."""

_open: Counter[Identity] = Counter()
"""The files this process has open: to open and close one once more would drop its locks on it."""


class Place:
    """Where a file was opened; a file that was never there (`:memory:`) is never lost."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._file = self._log = self._index = self._path
        self._was: Identity = None
        self._log_was: Identity = None
        self._index_was: Identity = None
        self._looks = 0.0

    def taken(self) -> None:
        """The file there has just been opened."""
        # A link may lead elsewhere by and by: the log is beside the file itself.
        self._file = Path(os.path.realpath(self._path))
        self._log, self._index = Path(f"{self._file}-wal"), Path(f"{self._file}-shm")
        self._was, self._log_was = _identity(self._file), _identity(self._log)
        self._index_was = _identity(self._index)
        self._looks = monotonic() + LOOK_S
        _open[self._was] += 1

    def left(self) -> None:
        """The file that was opened is closed."""
        _open[self._was] -= 1

    def lost(self) -> bool:
        """Whether another file is there by now, or none."""
        if (now := monotonic()) < self._looks:
            return False
        self._looks = now + LOOK_S
        return self._was is not None and _identity(self._path) != self._was

    @contextmanager
    def parting(self) -> Iterator[bool]:
        """Keep others out of what is there now; False where somebody has it open already.

        They may have taken the old log for its own, or share the index of the old one with us: to
        empty or remove that is to lose what they have written. Hold `MOVING`.
        """
        now = _identity(self._file)
        if now is None or _identity(self._index) != self._index_was:
            yield True
            return
        if _open[now]:
            yield False
            return
        with _locked(self._file) as alone:
            yield alone

    def clear(self) -> None:
        """Remove the log of the file that was: it would be read into another that is there now.

        Several processes may be about to: the lock is on the old log, so nobody removes a new one.
        Call it while the file that was is still open: until then no other gets its number.
        """
        if _identity(self._file) == self._was:
            return  # it is back
        with suppress(OSError), self._log.open("rb") as log:
            flock(log, LOCK_EX)
            if self._log_was is not None and _identity(self._log) == self._log_was:
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


def _identity(path: Path) -> Identity:
    try:
        found = os.stat(path)  # noqa: PTH116 - four times as fast
    except OSError:
        return None
    return found.st_dev, found.st_ino


Result = TypeVar("Result")
Args = TypeVarTuple("Args")

log = logging.getLogger(__name__)

BUSY_MS = 5_000
_LEAST_MS = 10
"""What a call still waits for another writer that has waited for its turn all the time."""

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

    def __init__(
        self, store: str, path: str | Path, migrations: Migrations, codes: Codes, busy_ms: int
    ) -> None:
        self._codes = codes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"sqlite {store}")
        self._store = store
        self._path = path
        self._migrations = migrations
        self._busy_ms = busy_ms
        self._place = Place(path)
        self._connection: sqlite3.Connection | None = None
        self._closed = False

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

        `busy_ms` is how long a call waits in all, for its turn and for another writer. A file that
        is taken away or replaced is opened anew, as it is by then. Raises `StoreNotOpened`.
        """
        file = cls(store, path, migrations, codes, busy_ms)
        try:
            await file._connect()
            yield file
        finally:
            await file.aclose()

    async def run(
        self, work: Callable[[sqlite3.Connection, *Args], Result], *args: *Args
    ) -> Result:
        """Do `work(connection, *args)` in the store's thread; raises `EffectFailed`."""
        if self._closed:
            raise EffectFailed(Fault(self._codes.unavailable, data={"reason": "closed"}))
        try:
            return await self._hop(self._do, monotonic(), work, *args)
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
                await asyncio.shield(self._hop(self._close))
        finally:
            self._thread.shutdown(wait=False)  # ends with what is queued, whoever waits for it

    async def _connect(self) -> None:
        try:
            await self._hop(self._open)
        except (sqlite3.Error, OSError, ValueError) as failure:
            raise StoreNotOpened(self._path, str(failure)) from failure

    def _do(
        self, asked: float, work: Callable[[sqlite3.Connection, *Args], Result], *args: *Args
    ) -> Result:
        connection = self._standing()
        left = self._busy_ms - int((monotonic() - asked) * 1_000)
        if left > self._busy_ms // 2:
            return work(connection, *args)
        # Those before it have waited for another writer: one after the other they would wait long.
        _wait(connection, min(self._busy_ms, max(left, _LEAST_MS)))
        try:
            return work(connection, *args)
        finally:
            _wait(connection, self._busy_ms)

    def _standing(self) -> sqlite3.Connection:
        """Give the connection, to another file if that is where the one that was open stood."""
        if self._connection is not None:
            if not self._place.lost():
                return self._connection
            log.error(
                "%s was removed or replaced while it was open: for %s what is there now is used",
                self._path,
                self._store,
            )
            self._part()
        return self._open()

    def _part(self) -> None:
        """Close what was lost: whole, wherever it is by now, and with no log left behind."""
        with MOVING, self._place.parting() as alone:
            if alone and self._connection is not None:
                with suppress(sqlite3.Error):
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                self._place.clear()
        self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            self._place.left()

    def _hop(self, work: Callable[[*Args], Result], *args: *Args) -> asyncio.Future[Result]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def _open(self) -> sqlite3.Connection:
        with MOVING:
            self._connection = self._opened()
            self._place.taken()
            return self._connection

    def _opened(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_MS / 1000, isolation_level=None)
        try:
            # Also what is written over was said by somebody: nothing of it stays in free pages.
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            with transaction(connection):
                connection.execute(_VERSIONS)
                self._migrate(connection)
            # After that: bringing tables up to date may wait longer than a call.
            _wait(connection, self._busy_ms)
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        row = connection.execute(
            "SELECT version FROM schema_versions WHERE store = ?", (self._store,)
        ).fetchone()
        execute_all(
            connection, due(self._path, self._store, row[0] if row else 0, self._migrations)
        )
        connection.execute(
            "INSERT INTO schema_versions VALUES (?, ?) "
            "ON CONFLICT (store) DO UPDATE SET version = excluded.version",
            (self._store, len(self._migrations)),
        )

    def _fault(self, failure: sqlite3.Error) -> Fault:
        # Python's own complaints (wrong use of the module) carry no code of SQLite's.
        code: int = getattr(failure, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code & _PRIMARY in _UNAVAILABLE:
            return Fault(self._codes.unavailable, retryable=True, data={"sqlite": code})
        return Fault(self._codes.failed, data={"sqlite": code})


def _wait(connection: sqlite3.Connection, ms: int) -> None:
    connection.execute(f"PRAGMA busy_timeout = {ms:d}")


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
