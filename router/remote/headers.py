"""Headers between client and remote stack: those of one connection stay on it (RFC 9110, 7.6.1).

A remote stack learns the client's address as it would behind nginx.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract.records import Role
    from router.stack import IncomingRequest

    HeaderLines = Iterable[tuple[bytes, bytes]]


FOR, PROTO, HOST = b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"
NAMES: Final = frozenset({FOR, PROTO, HOST})


def forwarding(incoming: IncomingRequest) -> list[tuple[bytes, bytes]]:
    """Return the three headers: the list grows by the peer; the others are the trusted proxies'.

    A request that did not come over HTTP has no peer, and gets none of them.
    """
    if not incoming.peer:
        return []
    route = [*_values(FOR, incoming.headers), incoming.peer]
    trusted_headers = incoming.headers if trusted(incoming.peer, incoming.proxies) else ()
    proto = [*_values(PROTO, trusted_headers), incoming.scheme][0]
    host = [*_values(HOST, trusted_headers), *_values(b"host", incoming.headers)][:1]
    found = [(FOR, ", ".join(route)), (PROTO, proto), *((HOST, one) for one in host)]
    return [(name, value.encode("latin-1")) for name, value in found]


@lru_cache(maxsize=1_024)
def trusted(peer: str, proxies: tuple[str, ...]) -> bool:
    """Whether a peer is one of the proxies: addresses, or networks as `10.0.0.0/8`."""
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    return any(address in ip_network(one) for one in proxies)


def _values(name: bytes, headers: HeaderLines) -> list[str]:
    """Return the values of all headers of a name, but for empty ones."""
    values = (value.decode("latin-1").strip() for key, value in headers if key == name)
    return [value for value in values if value]


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
# The body is sent anew, to another host; a compressed answer could not be split into frames.
_REQUEST = _HOP_BY_HOP | NAMES | {b"host", b"content-length", b"accept-encoding", b"expect"}
# The router sets these itself; how proxies before it buffer is its own decision.
_RESPONSE = _HOP_BY_HOP | {b"content-length", b"date", b"server", b"x-accel-buffering", b"alt-svc"}


def forwarded(incoming: IncomingRequest, exchange: str, role: Role) -> list[tuple[bytes, bytes]]:
    """Return the headers of the request to a stack."""
    return [
        *(one for one in _end_to_end(incoming.headers, _REQUEST) if not _spoofs(*one)),
        *forwarding(incoming),
        (b"accept-encoding", b"identity"),
        (_EXCHANGE, exchange.encode()),
        (_ROLE, role.encode()),
    ]


def returned(headers: HeaderLines) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers of a stack's answer that go to the client."""
    return tuple(_end_to_end(headers, _RESPONSE))


def _spoofs(name: bytes, _: bytes) -> bool:
    """Whether CGI or WSGI, where names have no dashes, takes a header for one of ours."""
    if b"_" not in name:
        return False
    dashed = name.replace(b"_", b"-")
    return dashed in _REQUEST or dashed.startswith(_OURS)


def _end_to_end(headers: HeaderLines, dropped: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
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
