"""Vectors of users kept in this process, searched one by one: exact, and nobody else's."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contract.memory import Recall
    from effects.embeddings import Vector

MOST_BYTES = 256 * 1_048_576
_FEWEST = 16
_NONE = -1


class Row(NamedTuple):
    """A vector as it is stored; `number` grows with every one that is, `seq` is the entry's."""

    number: int
    seq: int
    session_id: str | None
    relation: str | None
    vector: bytes


class Matrix:
    """One user's vectors by one maker, as far as they have been read."""

    def __init__(self, dimensions: int) -> None:
        self.last = 0
        """The number of the newest vector that has been read."""
        self._size = 0
        self._vectors = np.empty((0, dimensions), np.float32)
        self._facts = np.empty((3, 0), np.int64)  # seq, code of the session, code of the relation
        self._codes: dict[str | None, int] = {None: _NONE}

    def __len__(self) -> int:
        return self._size

    @property
    def bytes(self) -> int:
        """How much memory they take."""
        return self._vectors.nbytes + self._facts.nbytes

    def extend(self, rows: Sequence[Row]) -> None:
        """Add newer vectors, in their order."""
        if not rows:
            return
        start, self._size = self._size, self._size + len(rows)
        self._grow(self._size)
        joined = np.frombuffer(b"".join([row.vector for row in rows]), np.float32)
        self._vectors[start : self._size] = joined.reshape(len(rows), -1)
        facts = [(row.seq, self._code(row.session_id), self._code(row.relation)) for row in rows]
        self._facts[:, start : self._size] = np.array(facts).T
        self.last = rows[-1].number

    def best(self, vector: Vector, query: Recall, least: float) -> list[int]:
        """Give the entries nearest to a vector, those above `least` alone; equally near: newest.

        What the query rules out is out before the nearest are chosen.
        """
        scores = np.vecdot(self._vectors[: self._size], vector)
        found = np.flatnonzero(self._allowed(query) & (scores > least))
        if len(found) > query.limit:
            worst = np.partition(scores[found], -query.limit)[-query.limit]
            found = found[scores[found] >= worst]
        seqs = self._facts[0, found]
        order = np.lexsort((-seqs, -scores[found]))[: query.limit]
        chosen: list[int] = seqs[order].tolist()
        return chosen

    def _allowed(self, query: Recall) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        allowed = np.ones(self._size, np.bool_)
        _, sessions, relations = self._facts[:, : self._size]
        if query.except_session is not None:
            allowed &= sessions != self._known(query.except_session)
        if query.relation is not None:
            allowed &= relations == self._known(query.relation)
        return allowed

    def _code(self, name: str | None) -> int:
        return self._codes.setdefault(name, len(self._codes) - 1)

    def _known(self, name: str) -> int:
        return self._codes.get(name, len(self._codes))

    def _grow(self, size: int) -> None:
        if size <= len(self._vectors):
            return
        room = max(_FEWEST, size + size // 4)
        more = room - len(self._vectors)
        self._vectors = np.pad(self._vectors, ((0, more), (0, 0)))
        self._facts = np.pad(self._facts, ((0, 0), (0, more)))


class Matrices:
    """The matrices of the users who were asked about last, within so many bytes."""

    def __init__(self, dimensions: int, most_bytes: int = MOST_BYTES) -> None:
        self._dimensions = dimensions
        self._most = most_bytes
        self._by_user: OrderedDict[str, Matrix] = OrderedDict()
        self._generation = 0

    def __len__(self) -> int:
        return len(self._by_user)

    def of(self, user_id: str, generation: int) -> Matrix:
        """Give a user's matrix, empty where it is new; those of an older generation are let go.

        A generation ends whenever anything is forgotten.
        """
        if generation != self._generation:
            self._by_user.clear()
            self._generation = generation
        matrix = self._by_user.setdefault(user_id, Matrix(self._dimensions))
        self._by_user.move_to_end(user_id)
        return matrix

    def trim(self) -> None:
        """Let go of those asked about longest ago, until the others have room."""
        held = sum(matrix.bytes for matrix in self._by_user.values())
        while held > self._most and self._by_user:
            _, matrix = self._by_user.popitem(last=False)
            held -= matrix.bytes
