"""Headers on their way through: what belongs to one connection stays on it (RFC 9110, 7.6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.remote.forwarding import NAMES, forwarding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract.records import Role
    from router.stack import IncomingRequest

    Headers = Iterable[tuple[bytes, bytes]]

EXCHANGE = "x-cutover-exchange"
ROLE = "x-cutover-role"

_EXCHANGE, _ROLE = EXCHANGE.encode(), ROLE.encode()
_OURS = b"x-cutover-"
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# The body is sent anew, to another host, and wanted as it is: compressed frames cannot be split.
_REQUEST = _HOP_BY_HOP | NAMES | {b"host", b"content-length", b"accept-encoding", b"expect"}
# What the router says of its own answer; proxies before it are told how to buffer by it alone.
_RESPONSE = _HOP_BY_HOP | {b"content-length", b"date", b"server", b"x-accel-buffering", b"alt-svc"}


def forwarded(incoming: IncomingRequest, exchange: str, role: Role) -> list[tuple[bytes, bytes]]:
    """Give the headers a stack is asked with."""
    return [
        *(one for one in _end_to_end(incoming.headers, _REQUEST) if not _passes_for_another(*one)),
        *forwarding(incoming),
        (b"accept-encoding", b"identity"),
        (_EXCHANGE, exchange.encode()),
        (_ROLE, role.encode()),
    ]


def returned(headers: Headers) -> tuple[tuple[bytes, bytes], ...]:
    """Give the headers of a stack's answer that go to the client."""
    return tuple(_end_to_end(headers, _RESPONSE))


def _passes_for_another(name: bytes, _: bytes) -> bool:
    """Whether a header is taken for one of ours where names have no dashes, as in CGI and WSGI."""
    if b"_" not in name:
        return False
    meant = name.replace(b"_", b"-")
    return meant in _REQUEST or meant.startswith(_OURS)


def _end_to_end(headers: Headers, dropped: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    headers = list(headers)
    named = {
        name.strip().lower()
        for header, value in headers
        if header == b"connection"
        for name in value.split(b",")
    }
    if not named <= dropped:
        dropped |= named
    return [
        (name, value)
        for name, value in headers
        if name not in dropped and not name.startswith(_OURS)
    ]
