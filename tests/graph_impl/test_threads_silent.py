"""A PostgreSQL of threads that says nothing is given up when the wait for it is over."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from graph_impl.postgres_threads import ImpatientConnection
from tests.e2e.relay import relayed

pytestmark = pytest.mark.sockets


async def test_who_gives_up_a_statement_does_not_wait_for_the_server_to_agree(
    postgres_dsn: str,
) -> None:
    """The library would wait ten seconds: an answer would come out so much later."""
    there = psycopg.conninfo.conninfo_to_dict(postgres_dsn)
    async with relayed(int(str(there["port"]))) as relay:
        through = psycopg.conninfo.make_conninfo(postgres_dsn, port=relay.port)
        async with await ImpatientConnection.connect(through, autocommit=True) as connection:
            relay.flows.clear()
            limit = asyncio.timeout(5.0)
            with pytest.raises(TimeoutError):
                async with limit, asyncio.timeout(0.01):
                    await connection.execute("SELECT 1")
            assert connection.closed
            assert not limit.expired()
