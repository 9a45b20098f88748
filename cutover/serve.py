"""Running a router: a socket of our own, uvicorn on it, and a graceful end."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import uvicorn

from contract.errors import CutoverError

if TYPE_CHECKING:
    from fastapi import FastAPI

BACKLOG = 2_048


class PortTaken(CutoverError):
    """The address cannot be listened on."""

    def __init__(self, host: str, port: int, why: str) -> None:
        super().__init__(
            f"cannot listen on {host}:{port}: {why.lower()}; "
            "stop what uses it, or set [server] port (0 takes a free one)"
        )


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket; raises `PortTaken`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise PortTaken(host, port, getattr(error, "strerror", "") or str(error)) from error


def address(listening: socket.socket) -> str:
    """Give the address others reach a listening socket by."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server(app: FastAPI, drain_seconds: float) -> uvicorn.Server:
    """Prepare uvicorn: streams in flight may finish within so many seconds."""
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(drain_seconds)),
        # An idle connection kept open for long spares clients the connecting.
        timeout_keep_alive=75,
    )
    return uvicorn.Server(config)
