"""Transactions in SQLite: however one breaks off, the next can begin, and the error is its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from effects.stores.sqlite import transaction


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    """Give two tables, one of whose promises is only looked at when a transaction is committed."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("CREATE TABLE named (name TEXT PRIMARY KEY)")
        connection.execute(
            "CREATE TABLE names (name TEXT REFERENCES named DEFERRABLE INITIALLY DEFERRED)"
        )
        yield connection


def test_what_cannot_be_committed_is_undone(connection: sqlite3.Connection) -> None:
    """Left open, it would be in the way of all that follow."""
    with (
        pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"),
        transaction(connection),
    ):
        connection.execute("INSERT INTO names VALUES ('a')")
    with transaction(connection):
        connection.execute("INSERT INTO named VALUES ('b')")
    assert connection.execute("SELECT * FROM names").fetchall() == []


def test_an_error_that_ends_the_transaction_is_told_as_it_is(
    connection: sqlite3.Connection,
) -> None:
    """That there is nothing to undo any more is not what went wrong."""
    connection.execute("INSERT INTO named VALUES ('a')")
    with (
        pytest.raises(sqlite3.IntegrityError, match="UNIQUE"),
        transaction(connection),
    ):
        connection.execute("INSERT OR ROLLBACK INTO named VALUES ('a')")
