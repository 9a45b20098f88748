"""What the tests of the adapters share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.postgres import PLACES, empty_place


@pytest.fixture(params=PLACES)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Return the address of an empty database."""
    async with empty_place(request, tmp_path) as address:
        yield address
