"""What is sent to a remote stack: to which address, and with which headers.

Headers of one connection stay on it (RFC 9110, 7.6.1). A remote stack learns the client's address
as it would behind nginx.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit, urlunsplit

from yarl import URL

from contract.flow import FlowSpec, endpoint_path
from contract.records import Role
from router.config.schema import RemoteStackSettings
from router.remote.http1 import Client, Response
from router.stack import EXCHANGE_HEADER, ROLE_HEADER, IncomingRequest

HeaderLines = Iterable[tuple[bytes, bytes]]

FOR, PROTO, HOST = b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"

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
# The body is sent anew, to another host; a compressed response could not be split into frames.
_SENT_ANEW = {b"host", b"content-length", b"accept-encoding", b"expect"}
_REQUEST = _HOP_BY_HOP | _SENT_ANEW | {FOR, PROTO, HOST}
# The router sets these itself; how proxies before it buffer is its own decision.
_RESPONSE = _HOP_BY_HOP | {b"content-length", b"date", b"server", b"x-accel-buffering", b"alt-svc"}


class Endpoint:
    """One flow of a remote stack, at a URL."""

    def __init__(self, client: Client, url: URL, limits: RemoteStackSettings) -> None:
        self.limits = limits
        self.path = url.raw_path
        self._client = client
        # Written once: they are the same for every request.
        name = (url.host_port_subcomponent or "").encode("latin-1")
        user = f"{url.user}:{url.password or ''}".encode() if url.user else b""
        credentials = b"authorization: Basic %b\r\n" % b64encode(user) if user else b""
        self._line = b"POST " + url.raw_path_qs.encode("latin-1")
        self._head = b" HTTP/1.1\r\nhost: %b\r\n%b" % (name, credentials)
        self._joint = b"&" if url.raw_query_string else b"?"
        self._own_credentials = bool(user)

    async def request(self, incoming: IncomingRequest, exchange: str, role: Role) -> Response:
        """Send a request on; return when the head of the response has arrived.

        Raises what `Client.request` raises; the reader of the body closes or drains the response.
        """
        headers = [
            b"%b: %b\r\n" % header
            for header in forwarded(incoming, exchange, role)
            # Servers differ in which of two authorizations they read.
            if not (self._own_credentials and header[0] == b"authorization")
        ]
        query = self._joint + incoming.query if incoming.query else b""
        length = b"content-length: %d\r\n\r\n" % len(incoming.body)
        request = b"".join([self._line, query, self._head, *headers, length, incoming.body])
        return await self._client.request(request)


def endpoint_url(address: RemoteStackSettings, spec: FlowSpec, path: str = "") -> URL:
    """Return the URL of a flow, or of a further `path` of it.

    It is where `endpoint_path` says or, for a flow named in `paths`, below the address.
    """
    own, parts = address.paths.get(spec.name), urlsplit(address.url)
    wanted = path or spec.path
    if own is None:
        found = endpoint_path(parts.path, spec.path, wanted)
    else:
        found = parts.path.rstrip("/") + own + wanted.removeprefix(spec.path)
    return URL(urlunsplit(parts._replace(path=found)), encoded=True)


def forwarded(incoming: IncomingRequest, exchange: str, role: Role) -> list[tuple[bytes, bytes]]:
    """Return the headers of the request to a stack."""
    return [
        *(one for one in _end_to_end(incoming.headers, _REQUEST) if not _spoofs(one[0])),
        *forwarding(incoming),
        (b"accept-encoding", b"identity"),
        (EXCHANGE_HEADER, exchange.encode()),
        (ROLE_HEADER, role.encode()),
    ]


def returned(headers: HeaderLines) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers of a stack's response that go to the client."""
    return tuple(_end_to_end(headers, _RESPONSE))


def _spoofs(name: bytes) -> bool:
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
