"""What the tests of flows share: each named rule is shown on both stacks."""

import pytest


@pytest.fixture(params=["legacy", "graph"])
def stack(request: pytest.FixtureRequest) -> str:
    """Name a stack."""
    return str(request.param)
