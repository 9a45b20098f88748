"""The port pins are kept behind: which stack a conversation stays on."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

import msgspec

from effects.stores.sqlite import SqliteFile, transaction
from effects.stores.tables import Migrations

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path


_DIGEST_BYTES = 16


class Pin(msgspec.Struct, frozen=True):
    """The stack a conversation stays on, the configuration that chose it, and since when.

    `since` in microseconds since the Unix epoch.
    """

    stack: Literal["legacy", "graph"]
    version: str
    since: int


class PinStore(Protocol):
    """Keeps pins; several routers may share one."""

    async def hold(self, flow: str, conversation: str, pin: Pin, seconds: float) -> Pin:
        """Give the pin of a conversation: its own, or `pin` where it has none.

        Either way it is kept for so many seconds from now. Of many at once one wins, and all are
        given its pin. Raises `EffectFailed`.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections and files; idempotent."""
        ...


def pin_key(flow: str, conversation: str) -> str:
    """Name a conversation in a store: never by its own id, which may say who somebody is."""
    digest = blake2b(conversation.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{flow}:{digest}"


BreakerPhase: TypeAlias = Literal["open", "probing", "closed"]

KEEP_SECONDS = 3_600.0
"""How long a note is kept after its time is over: nobody who lives has not read it by then."""
SPENT_SECONDS = 2 * 86_400
"""How long a day's sums are kept."""


class BreakerNote(msgspec.Struct, frozen=True):
    """What is known of a breaker: `left` seconds, by the board's clock, is how long it holds.

    `mark` names this very note, and is never used again; `well` is how many probes went well.
    """

    mark: str
    phase: BreakerPhase
    left: float = 0.0
    well: int = 0


class NoteUpdate(msgspec.Struct, frozen=True):
    """A note that takes the place of the one marked `expected`: "" is none, None whichever."""

    key: str
    note: BreakerNote
    expected: str | None = ""


class Spending(msgspec.Struct, frozen=True):
    """Tokens, and money in the currency of the models' prices."""

    tokens: int = 0
    cost: float = 0.0


NO_SPENDING: Final = Spending()


class SharedState(Protocol):
    """What many routers know together. All methods raise `EffectFailed`."""

    async def post(self, posts: Sequence[NoteUpdate]) -> Mapping[str, BreakerNote]:
        """Put up those notes whose place is as expected; gives all that are up then, by key.

        To post the same again changes nothing while it is up.
        """
        ...

    async def spend(self, day: int, who: str, own: Spending) -> Spending:
        """Say what one has spent in a day, all told; gives what all have. Saying it again is free.

        `day` counts from the Unix epoch, in UTC.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections and files; idempotent."""
        ...


def takes_place(post: NoteUpdate, held: str) -> bool:
    """Say whether a note goes up where the one marked `held` is."""
    return held != post.note.mark and post.expected in (None, held)


def total(spent: Sequence[Spending]) -> Spending:
    """Add up."""
    return Spending(sum(one.tokens for one in spent), sum(one.cost for one in spent))


PIN_BUSY_MS = 50
"""How long to wait for another writer: nobody waits longer for a pin."""

PIN_MIGRATIONS: Migrations = (
    (
        """CREATE TABLE pins (
            key TEXT PRIMARY KEY, stack TEXT NOT NULL, version TEXT NOT NULL,
            since INTEGER NOT NULL, expires REAL NOT NULL
        ) WITHOUT ROWID""",
        "CREATE INDEX pins_by_end ON pins (expires)",
    ),
)
_EXPIRE_PINS = "DELETE FROM pins WHERE expires <= ?"
_HOLD_PIN = """
INSERT INTO pins (key, stack, version, since, expires) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET expires = excluded.expires
RETURNING stack, version, since
"""


class SqlitePins:
    """Pins in an SQLite file; made by `SqlitePins.open(path)`."""

    def __init__(self, file: SqliteFile, wall: Callable[[], float]) -> None:
        self._file = file
        self._wall = wall

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: str | Path, wall: Callable[[], float] = time.time
    ) -> AsyncIterator[SqlitePins]:
        """Open the file, making it where there is none; raises `StoreNotOpened`."""
        async with SqliteFile.open("pins", path, PIN_MIGRATIONS, busy_ms=PIN_BUSY_MS) as file:
            # What ended while nobody was here may be much: not in the way of a request.
            await file.run(_expire_pins, wall())
            yield cls(file, wall)

    async def hold(self, flow: str, conversation: str, pin: Pin, seconds: float) -> Pin:
        """Give the pin of a conversation, `pin` where it has none; kept for so many seconds."""
        key = pin_key(flow, conversation)
        return await self._file.run(_hold_pin, key, pin, self._wall(), seconds)

    async def aclose(self) -> None:
        """Close the file; idempotent."""
        await self._file.aclose()


def _expire_pins(connection: sqlite3.Connection, now: float) -> None:
    connection.execute(_EXPIRE_PINS, (now,))


def _hold_pin(
    connection: sqlite3.Connection, key: str, pin: Pin, now: float, seconds: float
) -> Pin:
    with transaction(connection):
        _expire_pins(connection, now)
        values = (key, pin.stack, pin.version, pin.since, now + seconds)
        stack, version, since = connection.execute(_HOLD_PIN, values).fetchone()
    return Pin(stack, version, since)


SHARED_STATE_BUSY_MS = 500
"""How long to wait for another writer: nobody is kept waiting for the board."""

_DAY_SECONDS = 86_400
SHARED_STATE_MIGRATIONS: Migrations = (
    (
        """CREATE TABLE board_notes (
            key TEXT PRIMARY KEY, mark TEXT NOT NULL, phase TEXT NOT NULL,
            until REAL NOT NULL, well INTEGER NOT NULL
        ) WITHOUT ROWID""",
        """CREATE TABLE board_spent (
            day INTEGER NOT NULL, who TEXT NOT NULL, tokens INTEGER NOT NULL, cost REAL NOT NULL,
            PRIMARY KEY (day, who)
        ) WITHOUT ROWID""",
    ),
)
_FORGET = "DELETE FROM board_notes WHERE until <= ?"
_HELD = "SELECT mark FROM board_notes WHERE key = ?"
_PUT_NOTE = (
    "INSERT OR REPLACE INTO board_notes (key, mark, phase, until, well) VALUES (?, ?, ?, ?, ?)"
)
_ALL = "SELECT key, mark, phase, until, well FROM board_notes WHERE until > ?"
_OWN = "SELECT tokens, cost FROM board_spent WHERE day = ? AND who = ?"
_OLD_DAYS = "DELETE FROM board_spent WHERE day < ?"
_SPEND = "INSERT OR REPLACE INTO board_spent (day, who, tokens, cost) VALUES (?, ?, ?, ?)"
_SUM = "SELECT coalesce(sum(tokens), 0), coalesce(sum(cost), 0.0) FROM board_spent WHERE day = ?"


class SqliteSharedState:
    """A board in an SQLite file; made by `SqliteBoard.open(path)`. It writes only what is new."""

    def __init__(self, file: SqliteFile, wall: Callable[[], float]) -> None:
        self._file = file
        self._wall = wall

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: str | Path, wall: Callable[[], float] = time.time
    ) -> AsyncIterator[SqliteSharedState]:
        """Open the file, making it where there is none; raises `StoreNotOpened`."""
        async with SqliteFile.open(
            "board", path, SHARED_STATE_MIGRATIONS, busy_ms=SHARED_STATE_BUSY_MS
        ) as file:
            yield cls(file, wall)

    async def post(self, posts: Sequence[NoteUpdate]) -> Mapping[str, BreakerNote]:
        """Put up those notes whose place is as expected; gives all that are up then."""
        return await self._file.run(_post, posts, self._wall())

    async def spend(self, day: int, who: str, own: Spending) -> Spending:
        """Say what one has spent in a day, all told; gives what all have."""
        return await self._file.run(_spend, day, who, own)

    async def aclose(self) -> None:
        """Close the file; idempotent."""
        await self._file.aclose()


def _post(
    connection: sqlite3.Connection, posts: Sequence[NoteUpdate], now: float
) -> dict[str, BreakerNote]:
    if posts:
        with transaction(connection):
            connection.execute(_FORGET, (now - KEEP_SECONDS,))
            for post in posts:
                _put(connection, post, now)
    rows = connection.execute(_ALL, (now - KEEP_SECONDS,))
    return {
        key: BreakerNote(mark, phase, max(until - now, 0.0), well)
        for key, mark, phase, until, well in rows
    }


def _put(connection: sqlite3.Connection, post: NoteUpdate, now: float) -> None:
    held = connection.execute(_HELD, (post.key,)).fetchone()
    if takes_place(post, held[0] if held else ""):
        note = post.note
        values = (post.key, note.mark, note.phase, now + note.left, note.well)
        connection.execute(_PUT_NOTE, values)


def _spend(connection: sqlite3.Connection, day: int, who: str, own: Spending) -> Spending:
    if connection.execute(_OWN, (day, who)).fetchone() != (own.tokens, own.cost):
        with transaction(connection):
            connection.execute(_OLD_DAYS, (day - SPENT_SECONDS // _DAY_SECONDS,))
            connection.execute(_SPEND, (day, who, own.tokens, own.cost))
    return Spending(*connection.execute(_SUM, (day,)).fetchone())
