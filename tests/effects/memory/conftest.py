"""Memories of both kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.memories import Memories
from tests.support.postgres import PLACES, empty_place


@pytest.fixture(params=PLACES)
async def memories(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Memories]:
    """Give a place without memories."""
    async with empty_place(request, tmp_path, "pgvector_dsn") as place:
        yield Memories(place)
