"""Listening sockets: one for a single process, several on one address for workers."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from typing import TypeAlias

from contract.errors import CutoverError

Address: TypeAlias = tuple[str, int]
"""Host and port."""

BACKLOG = 2_048
_UNSENT = 131_072
"""Bytes the kernel buffers beyond what it can send; more would hide a slow client."""
_LAST_PORT = 65_535
_NO_ADDRESS = "[server] host is to be an address of this machine, as that in [gateway] listen"
_ADVICE = {
    errno.EADDRINUSE: "stop what uses it, or set [server] port or [gateway] listen (0: a free one)",
    errno.EADDRNOTAVAIL: _NO_ADDRESS,
    socket.EAI_NONAME: _NO_ADDRESS,
}


class PortTaken(CutoverError):
    """The address cannot be listened on."""

    def __init__(self, host: str, port: int, why: str) -> None:
        super().__init__(f"cannot listen on {host}:{port}: {why}")


class SharingImpossible(CutoverError):
    """This system cannot spread an address over several workers."""

    def __init__(self) -> None:
        super().__init__("several workers need SO_REUSEPORT, which this system does not have")


def listen(host: str, port: int, *, shared: bool = False, now: bool = True) -> socket.socket:
    """Open a listening socket; raises `PortTaken`.

    `shared`: one of several on its address. Unless it listens `now`, whoever serves on it makes it
    listen, and no connection waits for that.
    """
    if not 0 <= port <= _LAST_PORT:
        raise PortTaken(host, port, f"ports are 0 to {_LAST_PORT}")
    opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if opened.family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Accepted connections inherit it.
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
        opened.bind((host, port))
        if now:
            opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        detail = (error.strerror or str(error)).lower()
        advice = _ADVICE.get(error.errno or 0)
        raise PortTaken(host, port, f"{detail}; {advice}" if advice else detail) from error
    return opened


def address(listening: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class SharedListener:
    """The listening sockets of one worker, numbered from 1, one for each address.

    The kernel spreads connections over all open ones. They outlive their worker: a client that
    connects while the worker is restarted waits a moment instead of being refused.
    """

    def __init__(self, number: int, addresses: Sequence[Address]) -> None:
        self.number = number
        self._addresses = addresses
        self._sockets: list[socket.socket] = []
        self._failed = False

    def open(self) -> list[socket.socket]:
        """Return the sockets, opened if they are closed; raises `PortTaken`.

        Opened again they take connections once their worker listens: one that dies again before
        that would reset them.
        """
        if not self._sockets:
            try:
                for host, port in self._addresses:
                    opened = listen(host, port, shared=True, now=not self._failed)
                    self._sockets.append(opened)
            except BaseException:
                self.close()
                raise
        return self._sockets

    def close(self) -> None:
        """Close the sockets, so that connections go to the other workers; idempotent."""
        self._failed = True
        for one in self._sockets:
            one.close()
        self._sockets = []


def shared_listeners(addresses: Sequence[Address], count: int) -> list[SharedListener]:
    """Open so many listeners, each on all of the addresses.

    Raises:
        PortTaken: another process listens there, be it a router with several workers.
        SharingImpossible: this system has no such sockets.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise SharingImpossible
    found: list[Address] = []
    for host, port in addresses:
        # A socket that is not shared is refused where any other listens; port 0 becomes a number.
        with listen(host, port) as alone:
            found.append((host, alone.getsockname()[1]))
    listeners = [SharedListener(number, found) for number in range(1, count + 1)]
    try:
        for listener in listeners:
            listener.open()
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners
