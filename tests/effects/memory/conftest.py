"""Memories of both kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.memories import Memories
from tests.support.postgres import own_schema


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.sockets)])
async def memories(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Memories]:
    """Give a place without memories."""
    if request.param == "sqlite":
        yield Memories(tmp_path / "memory.db")
    else:
        async with own_schema(request.getfixturevalue("pgvector_dsn")) as dsn:
            yield Memories(dsn)
