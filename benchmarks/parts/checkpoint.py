"""Measures what it costs a session to have a thread, for the bench; rows go to standard output.

    python -m benchmarks.parts.checkpoint SESSIONS

Every turn is taken by a graph without threads and by one with them, on worlds of their own in this
process: the difference is the thread's.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import msgspec

from benchmarks.parts.turns import STACKS, take, typical
from benchmarks.rows import BenchRow, at_most, reported
from contract.flow import Request
from contract.flows.session import SESSION, SessionOptions, SessionRequest
from effects.model import says
from effects.testing import World
from graph_impl.session import session
from graph_impl.threads import MemoryThreads, Threads, opened_threads
from router.serving.stack import LocalStack

TURNS = 10
TEXT = "Tell me how a river finds its way to the sea, in plain words, please. " * 3
ANSWERED = [f"{word} " for word in TEXT.split()]
TARGETS_MS = {"memory": 1.0, "sqlite": 5.0, "postgresql": 5.0}
"""The documents' figures, too; they say nothing of PostgreSQL."""
MOST_BYTES = 50_000
POSTGRES = os.environ.get("CUTOVER_BENCH_POSTGRES", "")


async def times(threads: Threads, sessions: int) -> dict[str, list[float]]:
    """Hold sessions on both, turn by turn; return the milliseconds of each one's turns."""
    kept = LocalStack("graph", {"session": session(threads=threads)}, "")
    stacks = {"kept": kept, "bare": STACKS["graph"]}
    found: dict[str, list[float]] = {name: [] for name in stacks}
    worlds = {name: World(says(*ANSWERED)) for name in stacks}
    for number in range(sessions):
        for _ in range(TURNS):
            for name, stack in stacks.items():
                body = SessionRequest(message=TEXT, session_id=f"s-{number}")
                request = Request(body, SessionOptions(unknown_session="create"))
                found[name].append((await take(stack, worlds[name], SESSION, request)).ms)
    return found


async def rows(
    name: str, threads: Threads, size: Callable[[], Any], sessions: int
) -> list[BenchRow]:
    """Measure one kind of threads."""
    found = await times(threads, sessions)
    per_session = (await size()) / sessions
    how = (
        f"tenth percentile of {len(found['kept'])} turns of sessions of {TURNS}, with "
        "threads and without, taking turns: neighbours on the machine make a turn longer"
    )
    return [
        at_most(
            f"checkpoint.{name}.per_turn",
            typical(found["kept"]) - typical(found["bare"]),
            "ms",
            TARGETS_MS[name],
            f"{how}; keeping and tidying included; documents: memory 1 ms, SQLite 5 ms",
        ),
        at_most(
            f"checkpoint.{name}.bytes_per_session",
            per_session,
            "bytes",
            MOST_BYTES,
            f"all that is stored after {TURNS} turns of 200 characters; documents: 10-20 KB",
        ),
    ]


async def measure(sessions: int, postgres: str = "") -> list[BenchRow]:
    """Measure threads in this process, in a file, and in PostgreSQL where there is one."""
    memory = MemoryThreads()

    async def held() -> int:
        return _bytes((memory.storage, memory.blobs, memory.writes))

    found = await rows("memory", memory, held, sessions)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        threads: Any = await stack.enter_async_context(opened_threads(f"sqlite:///{folder}/t.db"))

        async def stored() -> int:
            return int(await threads.hop(partial(_of_file, threads.conn)))

        found += await rows("sqlite", threads, stored, sessions)
    if not postgres:
        return [
            *found,
            reported("checkpoint.postgresql", 0, "ms", "CUTOVER_BENCH_POSTGRES is not set"),
        ]
    async with own_schema(postgres) as address, opened_threads(address) as kept:
        found += await rows("postgresql", kept, lambda: _of_tables(address), sessions)
    return found


def _of_file(connection: sqlite3.Connection) -> int:
    query = """SELECT (SELECT sum(length(checkpoint) + length(metadata)) FROM checkpoints)
        + (SELECT coalesce(sum(length(value)), 0) FROM writes)"""
    ((size,),) = connection.execute(query)
    return int(size)


def _bytes(value: Any) -> int:
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, dict):
        return _bytes(tuple(value.items()))
    return sum(map(_bytes, value)) if isinstance(value, tuple | list) else 0


@asynccontextmanager
async def own_schema(address: str) -> AsyncIterator[str]:
    """Yield an address whose tables are in their own schema, which is dropped afterwards."""
    connection = await _connected(address)
    schema = f"bench_{uuid4().hex}"
    await connection.execute(f"CREATE SCHEMA {schema}")
    try:
        joined = "&" if "?" in address else "?"
        yield f"{address}{joined}options=-csearch_path%3D{schema}"
    finally:
        await connection.execute(f"DROP SCHEMA {schema} CASCADE")
        await connection.close()


async def _connected(address: str) -> Any:
    psycopg: Any = import_module("psycopg")  # an extra
    return await psycopg.AsyncConnection.connect(address, autocommit=True)


async def _of_tables(address: str) -> int:
    connection = await _connected(address)
    total = 0
    for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
        query = f"SELECT coalesce(sum(pg_column_size(one.*)), 0) FROM {table} AS one"  # noqa: S608 (ours)
        row = await (await connection.execute(query)).fetchone()
        total += int(row[0])
    await connection.close()
    return total


def main() -> None:
    """Measure and print."""
    found = asyncio.run(measure(int(sys.argv[1]), POSTGRES))
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
