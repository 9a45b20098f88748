"""The address of one flow of a remote stack, and the requests that are sent to it."""

from __future__ import annotations

from base64 import b64encode
from urllib.parse import urlsplit, urlunsplit

from yarl import URL

from contract.flow import FlowSpec
from contract.records import Role
from router.config.schema import RemoteStackSettings
from router.remote.headers import forwarded
from router.remote.http1 import Answer, Client
from router.stack import IncomingRequest


class Endpoint:
    """One flow of a remote stack, at a URL."""

    def __init__(self, client: Client, url: URL, limits: RemoteStackSettings) -> None:
        self.limits = limits
        self._client = client
        # Written once: they are the same for every request.
        name = (url.host_port_subcomponent or "").encode("latin-1")
        user = f"{url.user}:{url.password or ''}".encode() if url.user else b""
        credentials = b"authorization: Basic %b\r\n" % b64encode(user) if user else b""
        self._line = b"POST " + url.raw_path_qs.encode("latin-1")
        self._head = b" HTTP/1.1\r\nhost: %b\r\n%b" % (name, credentials)
        self._joint = b"&" if url.raw_query_string else b"?"
        self._own_credentials = bool(user)

    async def ask(self, incoming: IncomingRequest, exchange: str, role: Role) -> Answer:
        """Send a request on; return when the answer's head has arrived.

        Raises what `Client.ask` raises; the reader of the body closes or drains the answer.
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
        return await self._client.ask(request)


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
