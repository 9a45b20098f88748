"""What tests of the router share."""

from collections.abc import AsyncIterator

import pytest

from tests.support.stage import Stage, staged


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A stage of its own."""
    async with staged() as opened:
        yield opened
