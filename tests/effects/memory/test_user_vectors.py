"""Vectors kept in the process: the same answer as the definition, within their bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contract.stores import Recall
from effects.memory import HashedEmbedder
from effects.memory.sqlite import Matrices, Matrix, SqliteEntries, VectorRow

NAMES = st.sampled_from([None, "a", "b"])
ROWS = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), NAMES, NAMES), max_size=40)


def vector(*numbers: float) -> bytes:
    """Encode a vector."""
    return np.array(numbers, np.float32).tobytes()


@given(ROWS, st.integers(0, 40), st.integers(1, 6), NAMES, NAMES)
def test_the_best_are_the_best(
    rows: list[tuple[int, int, str | None, str | None]],
    cut: int,
    limit: int,
    session: str | None,
    relation: str | None,
) -> None:
    """Whatever is ruled out, in whatever pieces they were read."""
    stored = [VectorRow(n, 7 * n, s, r, vector(x, y)) for n, (x, y, s, r) in enumerate(rows, 1)]
    matrix = Matrix(2)
    matrix.reserve(cut)
    matrix.extend(stored[:cut])
    matrix.extend(stored[cut:])
    query = Recall(user_id="u", query="q", limit=limit, except_session=session, relation=relation)
    allowed = [
        (x + 2 * y, 7 * n)
        for n, (x, y, s, r) in enumerate(rows, 1)
        if (session is None or s != session) and (relation is None or r == relation)
    ]
    best = sorted((one for one in allowed if one[0] > 0), reverse=True)[:limit]
    expected = [(seq, score) for score, seq in best]
    assert matrix.best(np.array([1, 2], np.float32), query, 0.0) == expected
    assert len(matrix) == matrix.last == len(rows)


def holding(vectors: int) -> Matrix:
    """Return a matrix of so many vectors."""
    matrix = Matrix(1)
    matrix.extend([VectorRow(n, n, None, None, vector(1)) for n in range(1, vectors + 1)])
    return matrix


def test_those_asked_about_longest_ago_go_first() -> None:
    """And all of them when a generation ends."""
    matrices = Matrices(1, 2 * holding(1).bytes)
    for user in ("a", "b"):
        matrices.put(user, holding(1))
    matrices.put("a", matrices.take("a", 0))
    matrices.put("c", holding(1))
    assert len(matrices) == 2
    assert [len(matrices.take(user, 0)) for user in "abc"] == [1, 0, 1]
    matrices.put("c", holding(1))
    assert len(matrices.take("c", 1)) == 0


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 40)), max_size=30))
def test_they_stay_within_their_bytes(uses: list[tuple[str, int]]) -> None:
    """Whoever is asked about, and however many vectors each has by then."""
    most = 3 * holding(20).bytes
    matrices, sizes = Matrices(1, most), dict[str, int]()
    for user, vectors in uses:
        matrices.take(user, 0)
        matrices.put(user, holding(vectors))
        sizes[user] = vectors
    kept = {user: len(matrix) for user in sizes if len(matrix := matrices.take(user, 0))}
    assert all(sizes[user] == vectors for user, vectors in kept.items())
    assert sum(holding(vectors).bytes for vectors in kept.values()) <= most
    assert len(matrices) == 0


async def test_users_without_memories_leave_nothing_behind(tmp_path: Path) -> None:
    """There is no end of them: what each left would stay for as long as the process."""
    embedder = HashedEmbedder()
    async with SqliteEntries.open(tmp_path / "memory.db", embedder, 0.0) as entries:
        (asked,) = await embedder.embed(["hello"])
        for user in map(str, range(50)):
            query = Recall(user_id=user, query="hello", limit=5)
            assert (await entries.by_vector(query, ["hello"], asked)).entries == ()
        assert len(entries.matrices) == 0
