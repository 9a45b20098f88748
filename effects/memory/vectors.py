"""Vectors in this process, compared one by one, a user's alone: exact."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from contract.stores import Recall
from effects.memory.embeddings import Vector

MOST_BYTES = 256 * 1_048_576
_FEWEST = 16
_NONE = -1


class VectorRow(NamedTuple):
    """A vector as it is stored; `number` grows with every one that is, `seq` is the entry's."""

    number: int
    seq: int
    session_id: str | None
    relation: str | None
    vector: bytes


class _Codes(dict[str | None, int]):
    """Small numbers for names; a name that is new gets the next one."""

    def __missing__(self, name: str | None) -> int:
        """Number a name."""
        return self.setdefault(name, len(self) - 1)


class Matrix:
    """One user's vectors by one maker, as far as they have been read."""

    def __init__(self, dimensions: int) -> None:
        self.last = 0
        """The number of the newest vector that has been read."""
        self._size = 0
        self._vectors = np.empty((0, dimensions), np.float32)
        self._facts = np.empty((3, 0), np.int64)  # seq, code of the session, code of the relation
        self._codes = _Codes({None: _NONE})

    def __len__(self) -> int:
        return self._size

    @property
    def bytes(self) -> int:
        """How much memory they take."""
        return self._vectors.nbytes + self._facts.nbytes

    def reserve(self, more: int) -> None:
        """Allocate space for so many more, and some to spare."""
        size = self._size + more
        if size <= len(self._vectors):
            return
        room = max(_FEWEST, size + size // 4)
        # Untouched, what is to spare takes no memory yet.
        vectors = np.empty((room, self._vectors.shape[1]), np.float32)
        vectors[: self._size] = self._vectors[: self._size]
        facts = np.empty((len(self._facts), room), np.int64)
        facts[:, : self._size] = self._facts[:, : self._size]
        self._vectors, self._facts = vectors, facts

    def extend(self, rows: Sequence[VectorRow]) -> None:
        """Add newer vectors, in their order."""
        if not rows:
            return
        self.reserve(len(rows))
        start, self._size = self._size, self._size + len(rows)
        numbers, seqs, sessions, relations, vectors = zip(*rows, strict=True)
        facts = self._facts[:, start : self._size]
        facts[0] = seqs
        facts[1] = [self._codes[name] for name in sessions]
        facts[2] = [self._codes[name] for name in relations]
        # Each goes where it stays: joined first, all would be in memory twice.
        place = self._vectors.data.cast("B")
        width = self._vectors.itemsize * self._vectors.shape[1]
        for begin, vector in enumerate(vectors, start):
            place[begin * width : (begin + 1) * width] = vector
        self.last = numbers[-1]

    def best(self, vector: Vector, query: Recall, least: float) -> list[int]:
        """Return the entries nearest to a vector, those above `least` alone; equally near: newest.

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

    def _known(self, name: str) -> int:
        return self._codes.get(name, len(self._codes))


class Matrices:
    """The matrices of the users recalled last, within so many bytes."""

    def __init__(self, dimensions: int, most_bytes: int = MOST_BYTES) -> None:
        self._dimensions = dimensions
        self._most = most_bytes
        self._by_user: OrderedDict[str, Matrix] = OrderedDict()
        self._generation = 0

    def __len__(self) -> int:
        return len(self._by_user)

    def of(self, user_id: str, generation: int) -> Matrix:
        """Return a user's matrix, empty where it is new; those of an older generation are dropped.

        A generation ends with every erasure.
        """
        if generation != self._generation:
            self._by_user.clear()
            self._generation = generation
        matrix = self._by_user.setdefault(user_id, Matrix(self._dimensions))
        self._by_user.move_to_end(user_id)
        return matrix

    def trim(self) -> None:
        """Drop those recalled longest ago, until the others fit."""
        held = sum(matrix.bytes for matrix in self._by_user.values())
        while held > self._most and self._by_user:
            _, matrix = self._by_user.popitem(last=False)
            held -= matrix.bytes
