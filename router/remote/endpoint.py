"""The address of one flow of a remote stack, and the requests that are sent to it."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from yarl import URL

from contract.flow import FlowSpec
from contract.records import Role
from router.config import RemoteStackSettings
from router.remote.headers import forwarded
from router.remote.http1.client import Client
from router.remote.http1.connection import Answer
from router.stack import IncomingRequest


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One flow of a remote stack."""

    client: Client
    url: URL
    limits: RemoteStackSettings
    _line: bytes = field(init=False)
    _head: bytes = field(init=False)

    def __post_init__(self) -> None:
        # Written once: they are the same for every request.
        object.__setattr__(self, "_line", b"POST " + self.url.raw_path_qs.encode("latin-1"))
        object.__setattr__(self, "_head", _constant_head(self.url))

    async def ask(self, incoming: IncomingRequest, exchange: str, role: Role) -> Answer:
        """Send a request on; return when the answer's head has arrived.

        Raises what `Client.ask` raises; the reader of the body closes or drains the answer.
        """
        return await self.client.ask(self._request(incoming, exchange, role))

    def _request(self, incoming: IncomingRequest, exchange: str, role: Role) -> bytes:
        joint = b"&" if self.url.raw_query_string else b"?"
        query = joint + incoming.query if incoming.query else b""
        headers = [
            b"%b: %b\r\n" % header
            for header in forwarded(incoming, exchange, role)
            # Servers differ in which of two authorizations they read.
            if not (self.url.user and header[0] == b"authorization")
        ]
        length = b"content-length: %d\r\n\r\n" % len(incoming.body)
        return b"".join([self._line, query, self._head, *headers, length, incoming.body])


def _constant_head(url: URL) -> bytes:
    """Return what follows a request's target and is the same for all requests."""
    name = (url.host_port_subcomponent or "").encode("latin-1")
    user = f"{url.user}:{url.password or ''}".encode() if url.user else b""
    credentials = b"authorization: Basic %b\r\n" % b64encode(user) if user else b""
    return b" HTTP/1.1\r\nhost: %b\r\n%b" % (name, credentials)


def endpoint_url(address: RemoteStackSettings, spec: FlowSpec, path: str = "") -> URL:
    """Return the URL of a flow, or of a further `path` of it.

    An address without a path, or one that ends with a slash, is that of a host: the flow's own path
    follows, or that in `paths`. Any other address is the flow's. A further path follows it as it
    follows the flow's own.
    """
    own = address.paths.get(spec.name)
    further = (path or spec.path).removeprefix(spec.path)
    parts = urlsplit(address.url)
    if own is not None or not parts.path.strip("/") or parts.path.endswith("/"):
        above = parts.path.rstrip("/") + (own or spec.path)
    elif further:
        above = parts.path
    else:
        return URL(address.url, encoded=True)
    return URL(urlunsplit(parts._replace(path=above + further)), encoded=True)
