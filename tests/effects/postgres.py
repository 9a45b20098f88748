"""A PostgreSQL to test on: tables in a schema of their own, dropped afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import psycopg


@asynccontextmanager
async def own_schema(dsn: str) -> AsyncIterator[str]:
    """Give an address whose tables are in a schema of their own, dropped afterwards."""
    schema = f"test_{uuid4().hex}"
    connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
    async with connection:
        await connection.execute(f"CREATE SCHEMA {schema}".encode())
        try:
            joined = "&" if "?" in dsn else "?"
            yield f"{dsn}{joined}options=-csearch_path%3D{schema},public"
        finally:
            await connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())
