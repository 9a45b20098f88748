"""What the tests of the adapters share."""

from __future__ import annotations

import socket

import pytest


@pytest.fixture
def unused_port() -> int:
    """Return a port of loopback without a server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
