"""Databases of tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg

from tests.conftest import reachable

POSTGRES = "host=/var/run/postgresql"


@contextmanager
def postgresql() -> Iterator[str]:
    """Yield the URL of an empty schema in PostgreSQL, which is dropped at the end."""
    schema = f"cutover_{uuid4().hex}"
    try:
        connection = psycopg.connect(POSTGRES, autocommit=True)
    except psycopg.OperationalError:
        reachable("PostgreSQL", ok=False)
        raise
    with connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        yield f"postgresql+psycopg:///?{POSTGRES}&options=-csearch_path%3D{schema}"
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())
