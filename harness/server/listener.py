"""The listeners of the process: uvicorn with bounds on a head, its bytes and its time."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from harness.config import ConfigRefused

log = logging.getLogger("cutover.heads")

HEAD_BYTES = 64 << 10
HEAD_SECONDS = 30.0


def listener(app: Any, **more: Any) -> uvicorn.Config:
    """Return what an application of this process is served with; `more` are uvicorn's."""
    return uvicorn.Config(
        app,
        http=BoundedHeads,
        ws="none",
        proxy_headers=False,
        log_config=None,
        log_level="warning",
        timeout_graceful_shutdown=5,
        **more,
    )


@asynccontextmanager
async def serving_beside(app: Any, table: str, host: str, port: int) -> AsyncIterator[None]:
    """Serve another application of the process, which a table of the configuration names.

    It ends with the block. Raises `ConfigRefused` where it cannot listen.
    """
    with _bound(table, host, port) as opened:
        # As providers of models do: 5 s breaks calls that are about to use a connection.
        config = listener(app, lifespan="off", server_header=False, timeout_keep_alive=75)
        server = _Beside(config)
        serving = asyncio.create_task(server.serve([opened]))
        try:
            yield
        finally:
            server.should_exit = True
            await serving


class _Beside(uvicorn.Server):
    """A second server of the process: signals are the first's, which is ended before this one."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _bound(table: str, host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server((host, port), family=family, backlog=2_048)
    except OSError as error:
        why = f"{table}: cannot listen on {host}:{port}: {error.strerror}"
        raise ConfigRefused(None, [why]) from error
    # asyncio sets it for sockets that it binds itself alone: answers would wait for 40 ms
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


class BoundedHeads(HttpToolsProtocol):
    """uvicorn's protocol, which by itself reads a head without end, and waits for it for ever.

    A connection whose head is too long is answered 400 and closed; one on which no head is complete
    in time is closed. What arrives together with the end of a request before is not counted. A
    request for an address instead of a path, as a proxy gets it, is answered 400, too.
    """

    _size = 0
    _in_head = True
    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a head."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._end_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, within the bounds."""
        if self._in_head:
            self._size += len(data)
        super().data_received(data)
        if self._in_head and self._size > HEAD_BYTES and not self.transport.is_closing():
            log.warning("head refused bytes=%d limit=%d", self._size, HEAD_BYTES)
            self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        """Begin with a head; that of a kept connection has its own time."""
        super().on_message_begin()
        if not self._in_head:
            self._await_head()

    def on_headers_complete(self) -> None:
        """End the head."""
        self._in_head, self._size = False, 0
        self._end_waiting()
        if not self.url.startswith(b"/"):
            raise ValueError(self.url)  # uvicorn answers 400 to what the parser raises
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._in_head = True
        self._due = self.loop.call_later(HEAD_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        before = cast("RequestResponseCycle | None", self.cycle)
        if before is None or before.response_complete:  # else it is being answered
            self.transport.close()

    def _end_waiting(self) -> None:
        if self._due is not None:
            self._due.cancel()
