"""Ports of loopback that stay a test's own, whether a server listens or not."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def own_port() -> Iterator[int]:
    """Yield a port on which nothing listens until the test does, again and again if it likes.

    A port that is merely free is handed to the next process that asks for one, be it for the own
    end of a connection: then something else listens, or a server cannot come back.
    """
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        # Set afterwards: the port was nobody's, and from now on a server that reuses it may bind.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield int(held.getsockname()[1])
