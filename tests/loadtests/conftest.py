"""The stamped target, in a process of its own, once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loadtests.processes import server_process


@pytest.fixture(scope="session")
def stamped() -> Iterator[str]:
    """Give the address of a stamped target."""
    with server_process("benchmarks.load_truth") as server:
        yield server.url
