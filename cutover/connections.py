"""Connections: uvicorn's, which an application may drop."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from router.http import ABORT


class Connection(HttpToolsProtocol):
    """uvicorn only closes connections: that waits until the client has taken all that was sent."""

    def on_message_begin(self) -> None:
        """Begin a request; its scope says how to drop the connection."""
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: {"call": self.transport.abort}}
