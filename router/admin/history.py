"""The history of what was in force, in an SQLite file that routers of one host share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec
from pydantic import BaseModel

from effects.stores.sqlite import SqliteDatabase, transaction
from effects.stores.tables import Schema
from router.admin.audit import ENCODER, Change
from router.config.errors import HIDDEN, display_value
from router.config.schema import Settings

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator
    from pathlib import Path

MOST = 10_000
"""How many changes are stored; the oldest go first."""

PROVIDER = "provider "
"""The prefix of a provider's flags, which tells them from keys of the file."""

HISTORY = Schema(
    "history",
    tables=(),
    initial=(
        """CREATE TABLE changes (
            id INTEGER PRIMARY KEY, at INTEGER NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL,
            before TEXT NOT NULL, after TEXT NOT NULL, version TEXT NOT NULL
        )""",
        "CREATE TABLE in_force (what TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    ),
)
_KNOWN = "SELECT value FROM in_force WHERE what = ?"
_ALL = "SELECT what, value FROM in_force"
_DELETE = "DELETE FROM in_force WHERE what = ?"
_STORE = """
INSERT INTO in_force VALUES (?, ?) ON CONFLICT (what) DO UPDATE SET value = excluded.value
"""
_INSERT = "INSERT INTO changes (at, who, what, before, after, version) VALUES (?, ?, ?, ?, ?, ?)"
_BOUND = "DELETE FROM changes WHERE id <= (SELECT max(id) FROM changes) - ?"
_READ = """
SELECT at, who, what, before, after, version FROM changes
WHERE ?1 = '' OR what LIKE ?1 ESCAPE '\\' OR what LIKE ?2 ESCAPE '\\' ORDER BY id DESC LIMIT ?3
"""
_NOTHING = "null"
_DIGEST_BYTES = 4
_FOLLOWED = ""
"""Present once a file has been followed: no key of a file has this name."""


class HistoryEntry(msgspec.Struct, frozen=True):
    """One change: `at` in microseconds since the Unix epoch, values as JSON, null for none."""

    at: int
    who: str
    what: str
    before: msgspec.Raw
    after: msgspec.Raw
    version: str


class History:
    """Changes in an SQLite file that routers of one host share; made by `History.open(path)`.

    It knows what is in force: the first router to note a change records it, the others do not.
    All methods raise `EffectFailed`.
    """

    def __init__(self, file: SqliteDatabase, wall: Callable[[], float], most: int) -> None:
        self._file = file
        self._wall = wall
        self._most = most

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: str | Path, wall: Callable[[], float] = time.time, *, most: int = MOST
    ) -> AsyncIterator[History]:
        """Open the file, making it where there is none; raises `StoreNotOpened`."""
        async with SqliteDatabase.open(path, HISTORY) as file:
            yield cls(file, wall, most)

    async def note(
        self, who: str, what: str, before: object, after: object, version: str = ""
    ) -> bool:
        """Record one change; False where that value was in force already."""
        stamp = self._stamp(who, version)
        return bool(await self._file.run(_note, stamp, what, _text(before), _text(after)))

    async def follow(
        self,
        who: str,
        values: Mapping[str, str],
        version: str = "",
        *,
        unset: Mapping[str, str] | None = None,
    ) -> int:
        """Record what differs from what was in force, removed keys too; return how many changes.

        `values` are all keys of the file with their JSON; a key not seen before, as newer code
        has, had its value in `unset`. The first time there is nothing to differ from.
        """
        return await self._file.run(_follow, self._stamp(who, version), values, unset or {})

    async def audited(self, change: Change, version: str) -> None:
        """Record what a person changed through a tool: keys of its flow, or dotted ones."""
        for key, after in change.after.items():
            what = f"flows.{change.flow}.{key}" if change.flow else key
            await self.note(change.who, what, change.before.get(key), after, version)

    async def entries(self, flow: str = "", limit: int = MOST) -> list[HistoryEntry]:
        """Return the newest changes, of one flow or of all, newest first."""
        return await self._file.run(_entries, flow, limit)

    def _stamp(self, who: str, version: str) -> _Stamp:
        return _Stamp(int(self._wall() * 1_000_000), who, version, self._most)


class _Stamp(msgspec.Struct, frozen=True):
    """When, by whom and in which version changes are recorded; the latest `most` stay."""

    at: int
    who: str
    version: str
    most: int


def in_force(settings: Settings) -> dict[str, str]:
    """Return every key of a configuration, dotted, with its value as JSON."""
    found: dict[str, str] = {}

    def walk(value: object, key: str) -> None:
        # Not by encoding it: that leaves defaults out where a struct says so.
        if isinstance(value, BaseModel):
            value = vars(value)
        elif isinstance(value, msgspec.Struct):
            value = msgspec.structs.asdict(value)
        if isinstance(value, dict):
            for name, below in value.items():
                walk(below, f"{key}.{name}" if key else name)
        else:
            found[key] = _text(_without_secret(key, value))

    walk(settings, "")
    return {key: found[key] for key in found if key not in {"version", "changed_by"}}


def _without_secret(key: str, value: object) -> object:
    """Return a value without secrets, by the name of its key: a digest still shows a change."""
    if not value or display_value(key, value) != HIDDEN:
        return value
    return f"{HIDDEN} {blake2b(ENCODER.encode(value), digest_size=_DIGEST_BYTES).hexdigest()}"


def _text(value: object) -> str:
    return ENCODER.encode(value).decode()


def _note(connection: sqlite3.Connection, stamp: _Stamp, what: str, before: str, after: str) -> int:
    with transaction(connection):
        row = connection.execute(_KNOWN, (what,)).fetchone()
        return _record(connection, stamp, {what: row[0] if row else before}, {what: after})


def _follow(
    connection: sqlite3.Connection,
    stamp: _Stamp,
    values: Mapping[str, str],
    unset: Mapping[str, str],
) -> int:
    with transaction(connection):
        rows = dict(connection.execute(_ALL).fetchall())
        if rows.pop(_FOLLOWED, None) is None:
            connection.executemany(_STORE, [*values.items(), (_FOLLOWED, _NOTHING)])
            return 0
        known = {what: row for what, row in rows.items() if not what.startswith(PROVIDER)}
        gone = dict.fromkeys(known.keys() - values.keys(), _NOTHING)
        return _record(connection, stamp, {**unset, **known}, {**values, **gone})


def _record(
    connection: sqlite3.Connection,
    stamp: _Stamp,
    known: Mapping[str, str],
    values: Mapping[str, str],
) -> int:
    new = {what: after for what, after in values.items() if known.get(what, _NOTHING) != after}
    for what in sorted(new):
        line = (stamp.at, stamp.who, what, known.get(what, _NOTHING), new[what], stamp.version)
        connection.execute(_INSERT, line)
        if new[what] == _NOTHING:
            connection.execute(_DELETE, (what,))
        else:
            connection.execute(_STORE, (what, new[what]))
    connection.execute(_BOUND, (stamp.most,))
    return len(new)


def _entries(connection: sqlite3.Connection, flow: str, limit: int) -> list[HistoryEntry]:
    name = flow.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    likes = (f"flows.{name}.%", f"{PROVIDER}{name}.%") if flow else ("", "")
    rows = connection.execute(_READ, (*likes, limit)).fetchall()
    return [
        HistoryEntry(
            at, who, what, msgspec.Raw(before.encode()), msgspec.Raw(after.encode()), version
        )
        for at, who, what, before, after, version in rows
    ]
