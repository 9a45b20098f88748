"""What tests of flows have: a stage."""

from collections.abc import AsyncIterator

import pytest

from tests.support.stage import Stage, staged


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A stage of its own: the simulated provider, a world in memory, both stacks."""
    async with staged() as opened:
        yield opened
