"""A remote stack: its address for each flow, its connections and its time limits."""

from __future__ import annotations

from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING

from yarl import URL

from contract.wire import FrameReader
from router.config import powers_at
from router.remote.endpoint import Endpoint, endpoint_url
from router.remote.http1.client import Client
from router.remote.run import RemoteRun

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contract.flow import FlowSpec
    from effects.tape import TapeSession
    from router.config import RemoteStackSettings
    from router.serving.run import RunRequest
    from router.stack import Powers, StackName


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
