"""Fakes: a memory in this process, enough for a demonstration, and an embedder without a model."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from zlib import crc32

import numpy as np

from contract.errors import EffectFailed
from contract.stores import (
    READ_MEANWHILE,
    DataSubject,
    FindNear,
    MemoryEntry,
    NearEntries,
    NearEntry,
    Reading,
    Recall,
    Revision,
)
from effects.memory.embeddings import MOST_OF_A_TEXT, Vectors, normalised
from effects.memory.store import (
    check_entry,
    check_query,
    check_reading,
    check_revision,
    fold,
    query_terms,
    recalls_of,
    stamped,
    text_terms,
)


class InMemoryMemory:
    """Entries in the order they were written; gone with the process.

    Those given are stored already, as they are. `wall` returns seconds since the Unix epoch.
    """

    def __init__(
        self, entries: Iterable[MemoryEntry] = (), wall: Callable[[], float] = time.time
    ) -> None:
        self._wall = wall
        self._progress: dict[Reading, str] = {}
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

    async def near(self, site: str, query: FindNear) -> NearEntries:
        """Find what shares terms with each text; the share of them stands for the similarity."""
        matches = [
            tuple(
                NearEntry(entry, _likeness(recall.query, entry.text))
                for entry in await self.recall(site, recall)
            )
            for recall in recalls_of(query)
        ]
        among = [
            tuple(_likeness(text, other) for other in query.texts[:number])
            for number, text in enumerate(query.texts)
        ]
        return NearEntries(tuple(matches), tuple(among))

    async def progress(self, site: str, reading: Reading) -> str | None:
        """Return the message up to which a conversation has been read."""
        check_reading(reading)
        return self._progress.get(reading)

    async def write(
        self, site: str, entries: tuple[MemoryEntry, ...], revision: Revision | None = None
    ) -> int:
        """Store; returns how many entries were new, now or when this write was made before."""
        for entry in entries:
            check_entry(entry)
        check_revision(revision)
        first = revision is None or self._revise(revision)
        written = 0
        for entry in entries:
            key = entry.user_id, entry.text
            if first:
                self._entries.setdefault(key, stamped(entry, self._wall))
            stored = self._entries.get(key)
            written += stored is not None and stored.memory_id == entry.memory_id
        return written

    def _revise(self, revision: Revision) -> bool:
        reading, read = revision.reading, self._progress.get(revision.reading)
        if read == revision.message_id:
            return False
        if read != revision.after:
            raise EffectFailed(READ_MEANWHILE)
        self._progress[reading] = revision.message_id
        self._entries = {
            key: one
            for key, one in self._entries.items()
            if one.user_id != reading.user_id or one.memory_id not in revision.removed
        }
        return True

    async def erase(self, subject: DataSubject) -> int:
        """Remove what is known of a user, or was learnt in a chat; returns how many entries."""
        name = {"user": "user_id", "chat": "session_id"}.get(subject.kind, "")
        self._progress = {
            reading: read
            for reading, read in self._progress.items()
            if subject.value != (getattr(reading, name) if name else read)
        }
        before = len(self._entries)
        self._entries = {
            key: one for key, one in self._entries.items() if not _belongs(one, subject)
        }
        return before - len(self._entries)


def _belongs(entry: MemoryEntry, subject: DataSubject) -> bool:
    if subject.kind == "user":
        return entry.user_id == subject.value
    return subject.kind == "chat" and subject.value in {entry.session_id, *entry.changed_in}


def _may_find(entry: MemoryEntry, query: Recall) -> bool:
    return (
        entry.user_id == query.user_id
        and (
            query.except_session is None
            or entry.session_id != query.except_session
            or bool(entry.changed_in)
        )
        and (query.relation is None or entry.relation == query.relation)
    )


def _likeness(text: str, other: str) -> float:
    terms, others = set(text_terms(text)), set(text_terms(other))
    return round(2 * len(terms & others) / (len(terms) + len(others) or 1), 4)


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
