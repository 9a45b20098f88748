"""Fakes: a memory in this process, enough for a demonstration, and an embedder without a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

import numpy as np

from contract.stores import DataSubject, MemoryEntry, Recall
from effects.memory.embeddings import MOST_OF_A_TEXT, Vectors, normalised
from effects.memory.store import check_entry, check_query, fold, query_terms, text_terms


class InMemoryMemory:
    """Entries in the order they were written; gone with the process."""

    def __init__(self, entries: Iterable[MemoryEntry] = ()) -> None:
        self._entries: dict[tuple[str, str], MemoryEntry] = {}
        for entry in entries:
            check_entry(entry)
            self._entries.setdefault((entry.user_id, entry.text), entry)

    @property
    def entries(self) -> tuple[MemoryEntry, ...]:
        """Everything remembered, oldest first."""
        return tuple(self._entries.values())

    async def recall(self, site: str, query: Recall) -> tuple[MemoryEntry, ...]:
        """Find what shares terms with the query: most shared first, then the newest."""
        check_query(query)
        wanted = set(query_terms(query.query))
        scored = [
            (len(wanted.intersection(text_terms(entry.text))), number, entry)
            for number, entry in enumerate(self._entries.values())
            if _may_find(entry, query)
        ]
        found = sorted((one for one in scored if one[0]), key=lambda one: one[:2], reverse=True)
        return tuple(entry for _, _, entry in found[: max(query.limit, 0)])

    async def write(self, site: str, entries: tuple[MemoryEntry, ...]) -> int:
        """Store; returns how many entries were new, now or when this write was made before."""
        for entry in entries:
            check_entry(entry)
        written = 0
        for entry in entries:
            stored = self._entries.setdefault((entry.user_id, entry.text), entry)
            written += stored.memory_id == entry.memory_id
        return written

    async def erase(self, subject: DataSubject) -> int:
        """Remove what is known of a user, or was learnt in a chat; returns how many entries."""
        before = len(self._entries)
        self._entries = {
            key: one for key, one in self._entries.items() if not _belongs(one, subject)
        }
        return before - len(self._entries)


def _belongs(entry: MemoryEntry, subject: DataSubject) -> bool:
    ids = {"user": entry.user_id, "chat": entry.session_id}
    return ids.get(subject.kind) == subject.value


def _may_find(entry: MemoryEntry, query: Recall) -> bool:
    return (
        entry.user_id == query.user_id
        and (query.except_session is None or entry.session_id != query.except_session)
        and (query.relation is None or entry.relation == query.relation)
    )


_WORDS = re.compile(r"[^\W_]+")
_PIECES = (2, 3)


class HashedEmbedder:
    """The fake of the port: pieces of two and three characters, counted by their hashes.

    Of words that are not ASCII single characters count, too. The same on every machine.
    """

    def __init__(self, dimensions: int = 1_024, name: str = "hashed") -> None:
        self.name = name
        self.dimensions = dimensions

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Make a vector of each text."""
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for piece in _pieces(text[:MOST_OF_A_TEXT]):
                vector[crc32(piece.encode()) % self.dimensions] += 1
        return normalised(vectors)


def _pieces(text: str) -> Iterator[str]:
    for word in _WORDS.findall(fold(text)):
        padded = f" {word} "
        for size in _PIECES:
            yield from (padded[at : at + size] for at in range(len(padded) - size + 1))
        if not word.isascii():
            yield from word
