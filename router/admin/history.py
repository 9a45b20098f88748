"""The history of changes: what came in force, when, and who changed it, once for all routers."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec
from pydantic import BaseModel

from effects.stores.sqlite import SqliteDatabase, transaction
from effects.stores.tables import Schema
from router.config import HIDDEN, Settings, display_value

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from router.admin.audit import Change

MOST = 10_000
"""How many changes are kept; the oldest go first."""

PROVIDER = "provider "
"""What a flag of a provider begins with, so that it is not taken for the file's."""

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
_FORGET = "DELETE FROM in_force WHERE what = ?"
_KEEP = """
INSERT INTO in_force VALUES (?, ?) ON CONFLICT (what) DO UPDATE SET value = excluded.value
"""
_TELL = "INSERT INTO changes (at, who, what, before, after, version) VALUES (?, ?, ?, ?, ?, ?)"
_BOUND = "DELETE FROM changes WHERE id <= (SELECT max(id) FROM changes) - ?"
_READ = """
SELECT at, who, what, before, after, version FROM changes
WHERE ?1 = '' OR what LIKE ?1 ESCAPE '\\' OR what LIKE ?2 ESCAPE '\\' ORDER BY id DESC LIMIT ?3
"""
_NOTHING = "null"
_DIGEST_BYTES = 4
_BEGUN = ""
"""The key that says that a file has been followed: no key of a file is called so."""

_encoder = msgspec.json.Encoder(decimal_format="number", order="deterministic", enc_hook=repr)


class Entry(msgspec.Struct, frozen=True):
    """One change: `at` in microseconds since the Unix epoch, values as JSON, null for none."""

    at: int
    who: str
    what: str
    before: msgspec.Raw
    after: msgspec.Raw
    version: str


class History:
    """Changes in an SQLite file that routers of one host share; made by `History.open(path)`.

    It knows what is in force: a change is told by whoever notes it first, and is news to nobody
    else. All methods raise `EffectFailed`.
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
        """Note one change; False where that value was in force already."""
        values = {what: _text(after)}
        assumed = {what: _text(before)}
        return bool(await self._file.run(_note, self._stamp(who, version), values, assumed))

    async def follow(
        self,
        who: str,
        values: Mapping[str, str],
        version: str = "",
        *,
        unset: Mapping[str, str] | None = None,
    ) -> int:
        """Note what differs from what was in force, gone keys too; gives how many changes.

        `values` are all keys of the file with their JSON; one never seen before, as newer code
        has, had its value in `unset`. The first time there is nothing to differ from.
        """
        return await self._file.run(_follow, self._stamp(who, version), values, unset or {})

    async def audited(self, change: Change, version: str) -> None:
        """Note what a person changed through a tool, by the keys it names."""
        for key, after in change.after.items():
            what = f"flows.{change.flow}.{key}"
            await self.note(change.who, what, change.before.get(key), after, version)

    async def entries(self, flow: str = "", limit: int = MOST) -> list[Entry]:
        """Read the newest changes, of one flow or of all, newest first."""
        return await self._file.run(_entries, flow, limit)

    def _stamp(self, who: str, version: str) -> _Stamp:
        return _Stamp(int(self._wall() * 1_000_000), who, version, self._most)


class _Stamp(msgspec.Struct, frozen=True):
    """What changes that are noted together have in common."""

    at: int
    who: str
    version: str
    most: int


def in_force(settings: Settings) -> dict[str, str]:
    """Give every key of a configuration, dotted, with its value as JSON."""
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
            found[key] = _text(_discreet(key, value))

    walk(settings, "")
    return {key: found[key] for key in found if key not in {"version", "changed_by"}}


def _discreet(key: str, value: object) -> object:
    """Give a value without secrets, by what its key is called: a digest still tells a change."""
    if not value or display_value(key, value) != HIDDEN:
        return value
    return f"{HIDDEN} {blake2b(_encoder.encode(value), digest_size=_DIGEST_BYTES).hexdigest()}"


def _text(value: object) -> str:
    return _encoder.encode(value).decode()


def _note(
    connection: sqlite3.Connection,
    stamp: _Stamp,
    values: Mapping[str, str],
    assumed: Mapping[str, str],
) -> int:
    with transaction(connection):
        known = {}
        for what in values:
            row = connection.execute(_KNOWN, (what,)).fetchone()
            known[what] = row[0] if row else assumed[what]
        return _tell(connection, stamp, known, values)


def _follow(
    connection: sqlite3.Connection,
    stamp: _Stamp,
    values: Mapping[str, str],
    unset: Mapping[str, str],
) -> int:
    with transaction(connection):
        rows = dict(connection.execute(_ALL).fetchall())
        if rows.pop(_BEGUN, None) is None:
            connection.executemany(_KEEP, [*values.items(), (_BEGUN, _NOTHING)])
            return 0
        known = {what: row for what, row in rows.items() if not what.startswith(PROVIDER)}
        gone = dict.fromkeys(known.keys() - values.keys(), _NOTHING)
        return _tell(connection, stamp, {**unset, **known}, {**values, **gone})


def _tell(
    connection: sqlite3.Connection,
    stamp: _Stamp,
    known: Mapping[str, str],
    values: Mapping[str, str],
) -> int:
    new = {what: after for what, after in values.items() if known.get(what, _NOTHING) != after}
    for what in sorted(new):
        line = (stamp.at, stamp.who, what, known.get(what, _NOTHING), new[what], stamp.version)
        connection.execute(_TELL, line)
        if new[what] == _NOTHING:
            connection.execute(_FORGET, (what,))
        else:
            connection.execute(_KEEP, (what, new[what]))
    connection.execute(_BOUND, (stamp.most,))
    return len(new)


def _entries(connection: sqlite3.Connection, flow: str, limit: int) -> list[Entry]:
    name = flow.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    likes = (f"flows.{name}.%", f"{PROVIDER}{name}.%") if flow else ("", "")
    rows = connection.execute(_READ, (*likes, limit)).fetchall()
    return [
        Entry(at, who, what, msgspec.Raw(before.encode()), msgspec.Raw(after.encode()), version)
        for at, who, what, before, after, version in rows
    ]
