"""A connection that can be cut, and that knows when it was lost."""

import time
from typing import Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Line(Protocol):
    """What the application may do with the connection under a request."""

    lost_ns: int

    def cut(self) -> None:
        """Close without a terminal chunk, after what was written has gone out."""
        ...

    def reset(self) -> None:
        """Drop at once, with whatever was not sent yet."""
        ...


class Connection(HttpToolsProtocol):
    """uvicorn's connection, reachable for the application as `scope["state"]["line"]`."""

    lost_ns = 0

    def on_message_begin(self) -> None:
        """Begin a request, and let it reach this connection."""
        super().on_message_begin()
        self.scope["state"]["line"] = self

    def connection_lost(self, exc: Exception | None) -> None:
        """Note when the connection was lost, by `time.monotonic_ns()`."""
        self.lost_ns = time.monotonic_ns()
        super().connection_lost(exc)

    def cut(self) -> None:
        """Close without a terminal chunk, after what was written has gone out."""
        self._given_up()
        self.transport.close()

    def reset(self) -> None:
        """Drop at once, with whatever was not sent yet."""
        self._given_up()
        self.transport.abort()

    def _given_up(self) -> None:
        # Otherwise uvicorn takes the unfinished answer for a mistake and answers 500.
        self.cycle.disconnected = True
