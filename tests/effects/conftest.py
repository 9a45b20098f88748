"""What the tests of the adapters share."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir

import pytest

from tests.effects.postgres import pgvector_server


@pytest.fixture
def unused_port() -> int:
    """Return a port of loopback where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def pgvector_dsn() -> Iterator[str]:
    """Return the address of a PostgreSQL with pgvector, one for all workers.

    For root it runs as somebody else, to whom pytest closes its own folders.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with pgvector_server(Path(gettempdir()) / f"cutover-pgvector-{run}") as dsn:
        yield dsn
