"""A remote stack: its address for each flow, its connections and its time limits."""

from __future__ import annotations

from base64 import b64encode
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from yarl import URL

from contract.wire import FrameReader
from router.config import powers_at
from router.remote.headers import forwarded
from router.remote.http1.client import Client
from router.remote.run import RemoteRun

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contract.flow import FlowSpec
    from contract.records import Role
    from effects.tape import TapeSession
    from router.config import RemoteStackSettings
    from router.remote.http1.connection import Answer
    from router.serving.run import RunRequest
    from router.stack import IncomingRequest, Powers, StackName


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


_FINGERPRINT_BYTES = 6


class RemoteStack:
    """A service that serves flows at an address; made by `RemoteStack.open`."""

    def __init__(self, name: StackName, address: RemoteStackSettings, client: Client) -> None:
        self.name: StackName = name
        self.address = address
        # A remote stack reports no version: another address counts as other code.
        self.fingerprint = blake2b(address.url.encode(), digest_size=_FINGERPRINT_BYTES).hexdigest()
        self._client = client
        self._flows: dict[str, tuple[Endpoint, FrameReader]] = {}

    @classmethod
    @asynccontextmanager
    async def open(
        cls, name: StackName, address: RemoteStackSettings
    ) -> AsyncIterator[RemoteStack]:
        """Open connections to the stack for as long as the block lasts."""
        url = URL(address.url, encoded=True)
        async with Client.open(url, address.connect_seconds) as client:
            yield cls(name, address, client)

    @property
    def powers(self) -> Powers:
        """What its configuration declares; its effects are on no tape."""
        return powers_at(self.address)

    def serves(self, flow: FlowSpec) -> bool:
        """Whether it has a flow: all of them, unless the configuration names some."""
        return self.address.serves(flow.name)

    def new_run(
        self,
        request: RunRequest,
        session: TapeSession,
        *,
        strict: bool = True,  # noqa: ARG002 - unparsed bytes are not checked
    ) -> RemoteRun:
        """Return a run of one flow for one request."""
        path = request.request.path or request.spec.path
        return RemoteRun(request, session, *self._asked(request.spec, path))

    def _asked(self, spec: FlowSpec, path: str) -> tuple[Endpoint, FrameReader]:
        found = self._flows.get(path)
        if found is None:
            url = endpoint_url(self.address, spec, path)
            endpoint = Endpoint(self._client, url, self.address)
            found = self._flows[path] = endpoint, FrameReader(spec.dialect)
        return found
