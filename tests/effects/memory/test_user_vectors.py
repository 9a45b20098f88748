"""Vectors kept in the process: the same answer as the definition, within their bounds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contract.stores import Recall
from effects.memory.sqlite import Matrices, Matrix, VectorRow

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
    assert matrix.best(np.array([1, 2], np.float32), query, 0.0) == [seq for _, seq in best]
    assert len(matrix) == matrix.last == len(rows)


def test_those_asked_about_longest_ago_go_first() -> None:
    """And all of them when a generation ends."""
    room = Matrix(1)
    room.extend([VectorRow(1, 1, None, None, vector(1))])
    matrices = Matrices(1, 2 * room.bytes)
    for user in ("a", "b", "a", "c"):
        matrices.of(user, 0).extend([VectorRow(1, 1, None, None, vector(1))])
    matrices.trim()
    assert len(matrices) == 2
    assert len(matrices.of("a", 0)) == 0 or len(matrices.of("b", 0)) == 0
    assert len(matrices.of("c", 0)) == 1
    assert len(matrices.of("c", 1)) == 0
