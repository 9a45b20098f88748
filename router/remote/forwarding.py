"""Forwarding headers: a stack behind an address learns who asked, as it would behind nginx."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from router.stack import Headers, IncomingRequest

FOR, PROTO, HOST = b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"
NAMES: Final = frozenset({FOR, PROTO, HOST})


def forwarding(incoming: IncomingRequest) -> list[tuple[bytes, bytes]]:
    """Give the three headers: the list grows by the peer, whoever sent it; the rest is as believed.

    A request that did not come over HTTP has no peer, and gets none of them.
    """
    if not incoming.peer:
        return []
    way = [*_said(FOR, incoming.headers), incoming.peer]
    believed = incoming.headers if trusted(incoming.peer, incoming.proxies) else ()
    proto = [*_said(PROTO, believed), incoming.scheme][0]
    host = [*_said(HOST, believed), *_said(b"host", incoming.headers)][:1]
    found = [(FOR, ", ".join(way)), (PROTO, proto), *((HOST, one) for one in host)]
    return [(name, value.encode("latin-1")) for name, value in found]


@lru_cache(maxsize=1_024)
def trusted(peer: str, proxies: tuple[str, ...]) -> bool:
    """Whether a peer is one of the proxies: addresses, or networks as `10.0.0.0/8`."""
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    return any(address in ip_network(one) for one in proxies)


def _said(name: bytes, headers: Headers) -> list[str]:
    """Give what is said in all headers of a name, but for empty ones."""
    values = (value.decode("latin-1").strip() for key, value in headers if key == name)
    return [value for value in values if value]
