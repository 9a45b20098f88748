"""Running a router: a socket of our own, uvicorn on it, and a graceful end."""

from __future__ import annotations

import asyncio
import errno
import gc
import signal
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from contract.errors import CutoverError
from cutover.server.connections import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI

    from router.router import Router

BACKLOG = 2_048
# A chat makes some thousand objects, few of which outlive it: 700, the default, is met in each.
_GENERATIONS = (10_000, 20, 20)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_UNSENT = 131_072
"""Bytes the kernel takes that it cannot send yet: megabytes of what nobody reads are no use."""
LAST_WORDS = 5
"""Seconds a client has to take the failure frames of a stream that was cut at the deadline."""


_LAST_PORT = 65_535
_NO_ADDRESS = "[server] host is to be an address of this machine"
_ADVICE = {
    errno.EADDRINUSE: "stop what uses it, or set [server] port (0 takes a free one)",
    errno.EADDRNOTAVAIL: _NO_ADDRESS,
    socket.EAI_NONAME: _NO_ADDRESS,
}


class PortTaken(CutoverError):
    """The address cannot be listened on."""

    def __init__(self, host: str, port: int, why: str) -> None:
        super().__init__(f"cannot listen on {host}:{port}: {why}")


def settle() -> None:
    """Spare the garbage collector what lives as long as the process: code and what was opened.

    Walking that took a fifth of a chat's processor time, in pauses its reader waits through.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GENERATIONS)


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Open a listening socket, one of several on its address if `shared`; raises `PortTaken`."""
    if not 0 <= port <= _LAST_PORT:
        raise PortTaken(host, port, f"ports are 0 to {_LAST_PORT}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server(
            (host, port), family=family, backlog=BACKLOG, reuse_port=shared
        )
    except OSError as error:
        raise PortTaken(host, port, _why(error)) from error
    # Its connections inherit it.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
    return listening


def _why(error: OSError) -> str:
    """Say what happened, without the address that Python adds, and what to do."""
    said = (error.strerror or str(error)).partition(" (while")[0].lower()
    advice = _ADVICE.get(error.errno or 0)
    return f"{said}; {advice}" if advice else said


def address(listening: socket.socket) -> str:
    """Give the address others reach a listening socket by."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn that ends the streams it cannot wait for, and lets its caller end the process."""

    def __init__(self, config: uvicorn.Config, router: Router, drain_seconds: float) -> None:
        super().__init__(config)
        self._router = router
        self._drain_seconds = drain_seconds

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal, without raising it again: that would kill before captures are kept."""
        loop = asyncio.get_running_loop()
        for one in _SIGNALS:
            loop.add_signal_handler(one, self.handle_exit, one, None)
        try:
            yield
        finally:
            for one in _SIGNALS:
                loop.remove_signal_handler(one)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more requests; streams that outlast the deadline end in their failure frames."""
        self._router.draining = True
        deadline = asyncio.get_running_loop().call_later(self._drain_seconds, self._router.cut)
        try:
            await super().shutdown(sockets)
        finally:
            deadline.cancel()


def server(app: FastAPI, router: Router, drain_seconds: float) -> Server:
    """Prepare uvicorn: streams in flight may finish within so many seconds."""
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=Connection,
        ws="none",
        lifespan="off",
        # Who asked is told to stacks behind an address (router/remote/forwarding.py).
        proxy_headers=False,
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=round(drain_seconds) + LAST_WORDS,
        # An idle connection kept open for long spares clients the connecting.
        timeout_keep_alive=75,
    )
    return Server(config, router, drain_seconds)
