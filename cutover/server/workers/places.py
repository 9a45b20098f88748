"""Places: one address, and for each worker a listening socket of its own on it."""

from __future__ import annotations

import socket

from contract.errors import CutoverError
from cutover.server.serve import listen


class SharingImpossible(CutoverError):
    """This system cannot spread an address over several workers."""

    def __init__(self) -> None:
        super().__init__("several workers need SO_REUSEPORT, which this system does not have")


class Place:
    """Where one worker listens, numbered from 1.

    The kernel spreads connections over all open places. A place outlives its worker: who connects
    while that is started again waits a moment instead of being refused.
    """

    def __init__(self, number: int, host: str, port: int) -> None:
        self.number = number
        self._host = host
        self._port = port
        self._socket: socket.socket | None = None

    def open(self) -> socket.socket:
        """Give the listening socket, opened where it is not; raises `PortTaken`."""
        if self._socket is None:
            self._socket = listen(self._host, self._port, shared=True)
        return self._socket

    def close(self) -> None:
        """Take no more connections here: they go to the other places; idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def places(host: str, port: int, count: int) -> list[Place]:
    """Open so many places on one address.

    Raises:
        PortTaken: somebody else listens there, another router with several workers included.
        SharingImpossible: this system has no such sockets.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise SharingImpossible
    # One that is not shared is refused where anybody listens; port 0 becomes a number.
    with listen(host, port) as alone:
        port = alone.getsockname()[1]
    found = [Place(number, host, port) for number in range(1, count + 1)]
    try:
        for place in found:
            place.open()
    except BaseException:
        for place in found:
            place.close()
        raise
    return found
