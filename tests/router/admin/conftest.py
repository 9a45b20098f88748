"""A deployment with an operations API, and a person with a token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.deployment import Deployment
from tests.support.operations_client import ALICE, Operator, operated


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Deployment]:
    """Deploy with an operations API, everybody on graph and shadowed."""
    async with operated(tmp_path) as running:
        yield running


@pytest.fixture
def alice(place: Deployment) -> Operator:
    """Act as a person with a token."""
    return Operator(place, ALICE)
