"""Vectors made later: after a rest, each once, and one bad text does not hold up others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from contract.errors import EffectFailed, Fault
from effects.memory.embeddings import Vectors
from effects.memory.fake import HashedEmbedder
from effects.memory.search import BATCH, VectorBackfill
from effects.memory.store import StoredEntry
from tests.support.memories import Moody

pytestmark = pytest.mark.virtual


class Waiting:
    """A shelf of entries that wait."""

    def __init__(self, count: int) -> None:
        self.left = [StoredEntry(n, "u", f"text {n}") for n in range(1, count + 1)]
        self.kept: list[int] = []
        self.empty = asyncio.Event()

    async def waiting(self, after: int, limit: int) -> list[StoredEntry]:
        """Give those that wait."""
        return [one for one in self.left if one.seq > after][:limit]

    async def keep(self, stored: Sequence[StoredEntry], vectors: Vectors) -> None:
        """Keep vectors."""
        assert len(vectors) == len(stored)
        self.kept += [one.seq for one in stored]
        self.left = [one for one in self.left if one not in stored]
        if len(self.left) <= 1:
            self.empty.set()


class Choosy(Moody):
    """Refuses one text."""

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Make vectors, unless the text is among them."""
        self.asked += texts
        if "text 70" in texts:
            raise EffectFailed(Fault("model_bad_request"))
        return await self._embedder.embed(texts)


@pytest.mark.parametrize("start", [0.0, 0.0001])
async def test_all_that_wait_get_a_vector_once(start: float) -> None:
    """Wherever it begins."""
    shelf = Waiting(3 * BATCH)
    catching_up = VectorBackfill(shelf, HashedEmbedder(8), lambda: start)  # type: ignore[arg-type] # a part of one
    async with catching_up.running():
        catching_up.wake()
        await shelf.empty.wait()
    assert sorted(shelf.kept) == list(range(1, 3 * BATCH + 1))


async def test_an_embedder_that_is_away_is_asked_ever_less_often() -> None:
    """One, two, four seconds, and never more than five minutes."""
    shelf, moody = Waiting(2), Moody(HashedEmbedder(8))
    moody.fault = Fault("model_unavailable", retryable=True)
    catching_up = VectorBackfill(shelf, moody, lambda: 0.0)  # type: ignore[arg-type] # as above
    async with catching_up.running():
        catching_up.wake()
        await asyncio.sleep(3_600)
        asked = len(moody.asked) // 2
        moody.fault = None
        await shelf.empty.wait()
    assert 15 < asked < 25
    assert shelf.kept == [1, 2]


async def test_a_text_that_is_refused_is_passed_over() -> None:
    """And asked for no second time."""
    shelf, choosy = Waiting(2 * BATCH), Choosy(HashedEmbedder(8))
    catching_up = VectorBackfill(shelf, choosy, lambda: 0.0)  # type: ignore[arg-type] # as above
    async with catching_up.running():
        catching_up.wake()
        await shelf.empty.wait()
        choosy.asked.clear()
        catching_up.wake()
        await asyncio.sleep(1)
    assert [one.seq for one in shelf.left] == [70]
    assert choosy.asked == []
