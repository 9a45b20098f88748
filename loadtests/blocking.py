"""One exchange over a blocking socket, which Locust's patching makes cooperative.

Bytes are taken from the socket as soon as there are any: a client that fills blocks of 1024 bytes
first sees the first word of a slow stream when the last one is there.
"""

from __future__ import annotations

import errno
import socket
import ssl
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadtests.measuring import How
    from loadtests.response import ResponseReader
    from loadtests.targets import Target

RECEIVE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect to; `host` is a number."""

    family: socket.AddressFamily
    host: str
    port: int


def exchange(target: Target, payload: bytes, reader: ResponseReader) -> tuple[How, str]:
    """Send a request and read its response to the end; how it ended, and the fault's own name."""
    try:
        with _connected(target) as connection:
            connection.sendall(payload)
            return _read(connection, reader)
    except OSError as error:
        return reader.ended(), fault_code(error)


def _read(connection: socket.socket, reader: ResponseReader) -> tuple[How, str]:
    receive, now = connection.recv, time.monotonic_ns
    while not (reader.done or reader.broken):
        piece = receive(RECEIVE_BYTES)
        at = now()
        if not piece:
            return reader.ended(), "closed"
        reader.feed(piece, at)
    return ("done", "") if reader.done else ("cut", "malformed_http")


def _connected(target: Target) -> socket.socket:
    plain = _plain(resolved(target.host, target.port))
    if not target.tls:
        return plain
    try:
        return tls_context().wrap_socket(plain, server_hostname=target.host)
    except BaseException:
        plain.close()
        raise


def _plain(address: Address) -> socket.socket:
    connection = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.connect((address.host, address.port))
    except BaseException:
        connection.close()
        raise
    return connection


@cache
def resolved(host: str, port: int) -> Address:
    """Look a name up, once: resolving is not what is measured.

    The first address that takes a connection (`localhost` may be two), else simply the first;
    raises OSError for a name nobody knows.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [Address(family, str(at[0]), int(at[1])) for family, _, _, _, at in found]
    return next(filter(_answers, addresses), addresses[0])


def _answers(address: Address) -> bool:
    try:
        _plain(address).close()
    except OSError:
        return False
    return True


@cache
def tls_context() -> ssl.SSLContext:
    """Make the context of all encrypted connections, once."""
    return ssl.create_default_context()


def fault_code(error: OSError) -> str:
    """Name a network fault: `ECONNREFUSED`, or the class where there is no number."""
    return errno.errorcode.get(error.errno or 0, type(error).__name__)
