"""Memories of both kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.effects.memory.houses import House
from tests.support.postgres import own_schema


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.sockets)])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    """Give a place without memories."""
    if request.param == "sqlite":
        yield House(tmp_path / "memory.db")
    else:
        async with own_schema(request.getfixturevalue("pgvector_dsn")) as dsn:
            yield House(dsn)
