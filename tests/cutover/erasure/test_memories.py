"""Memories of somebody go from the store that is configured, with their vectors."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutover.erasure import erase_rows
from effects.memory.fake import HashedEmbedder
from effects.stores.values import DataSubject
from router.config import StoreSettings
from tests.effects.memory.houses import House, entry
from tests.support.postgres import own_schema


@pytest.mark.sockets
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_memories_go_with_their_vectors(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Though whoever forgets knows of no model; other users keep theirs."""
    async with own_schema(request.getfixturevalue("pgvector_dsn")) as dsn:
        path = tmp_path / "memory.db"
        place: Path | str = path if kind == "sqlite" else dsn
        house = House(place)
        async with house.open(HashedEmbedder(64)) as memory:
            await memory.write(
                "w", (entry("tea", "ann"), entry("cake", "ann"), entry("tea", "ben"))
            )
        address = f"sqlite:///{path}" if kind == "sqlite" else "env:DB"
        stores = StoreSettings(conversations="memory://", memory=address, pauses="memory://")
        forgotten = await erase_rows(stores, {"DB": dsn}, DataSubject("user", "ann"), ())
        assert (forgotten.memories, forgotten.failures) == (2, ())
        assert house.counts() == [1, 1, 0]
