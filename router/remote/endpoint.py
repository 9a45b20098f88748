"""Where a stack is asked: its address for one flow, its connections and its time limits."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from yarl import URL

from router.remote.headers import forwarded

if TYPE_CHECKING:
    from contract.flow import FlowSpec
    from contract.records import Role
    from router.config import RemoteStackSettings
    from router.remote.http1.answer import Answer
    from router.remote.http1.client import Client
    from router.stack import IncomingRequest


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One flow of a stack behind an address."""

    client: Client
    url: URL
    limits: RemoteStackSettings
    _line: bytes = field(init=False)
    _named: bytes = field(init=False)

    def __post_init__(self) -> None:
        # Written once: they are the same for every request.
        object.__setattr__(self, "_line", b"POST " + self.url.raw_path_qs.encode("latin-1"))
        object.__setattr__(self, "_named", _named(self.url))

    async def ask(self, incoming: IncomingRequest, exchange: str, role: Role) -> Answer:
        """Send a request on; returns when the answer's head has come.

        Raises what `Client.ask` does; whoever reads the body closes or drains the answer.
        """
        return await self.client.ask(self._request(incoming, exchange, role))

    def _request(self, incoming: IncomingRequest, exchange: str, role: Role) -> bytes:
        joint = b"&" if self.url.raw_query_string else b"?"
        query = joint + incoming.query if incoming.query else b""
        headers = [
            b"%b: %b\r\n" % header
            for header in forwarded(incoming, exchange, role)
            # One request, one authorization: two would be read by each server in its own way.
            if not (self.url.user and header[0] == b"authorization")
        ]
        length = b"content-length: %d\r\n\r\n" % len(incoming.body)
        return b"".join([self._line, query, self._named, *headers, length, incoming.body])


def _named(url: URL) -> bytes:
    """Give what follows a request's target and is the same for all of them."""
    name = (url.host_port_subcomponent or "").encode("latin-1")
    user = f"{url.user}:{url.password or ''}".encode() if url.user else b""
    credentials = b"authorization: Basic %b\r\n" % b64encode(user) if user else b""
    return b" HTTP/1.1\r\nhost: %b\r\n%b" % (name, credentials)


def endpoint_url(address: RemoteStackSettings, spec: FlowSpec, path: str = "") -> URL:
    """Give where a flow is asked, or what comes to a further `path` of it.

    An address without a path, or one that ends with a slash, is that of a host: the flow's own path
    follows, or what `paths` says. Any other address is the flow's. A further path follows it as it
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
