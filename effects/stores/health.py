"""Looking into a store without opening it for work: nothing is made, changed or brought up to date.

What there is to say holds no address and no text of a server's: either may hold a secret.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

CHECK_SECONDS = 2.0
"""How long a look may take."""

_TABLES = "SELECT count(*) FROM sqlite_master WHERE name = 'schema_versions'"
_STORED_VERSION = "SELECT version FROM schema_versions WHERE store = ?"


class HealthCheck(NamedTuple):
    """Whether a store can be used, and what there is to say of it."""

    ok: bool
    detail: str


def version_health(version: int, known: int) -> HealthCheck:
    """Judge the version of a store's tables, 0 where there are none, by those the code knows."""
    if version > known:
        return HealthCheck(
            ok=False, detail=f"its tables are version {version}, this code knows {known}"
        )
    if not version:
        return HealthCheck(ok=True, detail="opened, without tables yet")
    if version < known:
        said = f"opened, tables of version {version}: the router will bring them to {known}"
        return HealthCheck(ok=True, detail=said)
    return HealthCheck(ok=True, detail=f"opened, tables of version {version}")


def check_file(path: Path, store: str, known: int) -> HealthCheck:
    """Look into an SQLite file that is there; `known` is the version of the code, 0 for none."""
    try:
        with closing(sqlite3.connect(read_only(path), timeout=CHECK_SECONDS, uri=True)) as file:
            (versioned,) = file.execute(_TABLES).fetchone()
            row = (
                file.execute(_STORED_VERSION, (store,)).fetchone() if versioned and known else None
            )
    except sqlite3.OperationalError:
        return HealthCheck(ok=False, detail="the file cannot be opened")
    except sqlite3.DatabaseError:
        return HealthCheck(ok=False, detail="the file is no SQLite database")
    return (
        version_health(row[0] if row else 0, known)
        if known
        else HealthCheck(ok=True, detail="opened")
    )


def read_only(path: Path) -> str:
    """Give the URI by which a file is read, and nothing made beside it."""
    # Where nobody has the file open there is no log beside it, and reading would make one.
    beside = all(path.with_name(f"{path.name}-{part}").exists() for part in ("wal", "shm"))
    return f"{path.absolute().as_uri()}?mode=ro" + ("" if beside else "&immutable=1")
