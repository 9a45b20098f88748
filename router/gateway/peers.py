"""The other workers, of this host and of others: one that has the exchange of a call answers it.

Every worker listens on a socket of its own in a folder all of its host know, and begins the ids of
its exchanges with that socket's name. Hosts announce the names of their workers to each other.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import aiohttp
from starlette.types import Scope, Send

from router.context import trace_of
from router.exchange_ids import new_exchange_id
from router.gateway.answers import frame_event
from router.gateway.cancellations import SESSION_HEADER
from router.gateway.correlation import EXCHANGE_HEADERS, named_exchange
from router.gateway.hosts import KnownHosts
from router.gateway.refusals import GatewayRefused
from router.stack import ROLE_HEADER, header_of

log = logging.getLogger(__name__)

NOT_HERE: Final = 421
"""Misdirected request: a worker's answer to another for an exchange that is not its own."""
PASSED_ON: Final = b"x-cutover-passed-on"
"""On a call from another host, which passes it on to no third."""
_NAME_BYTES: Final = 3
_MARK: Final = ((PASSED_ON.decode(), "1"),)
_CONNECT_SECONDS: Final = 2.0
_FORWARDED: Final = frozenset(
    {
        b"accept",
        b"authorization",
        b"content-type",
        b"mcp-method",
        b"mcp-name",
        b"mcp-protocol-version",
        SESSION_HEADER,
        b"traceparent",
        ROLE_HEADER,
        *EXCHANGE_HEADERS,
    }
)
_RETURNED: Final = frozenset(
    {
        b"cache-control",
        b"content-type",
        b"retry-after",
        b"x-accel-buffering",
        b"x-should-retry",
        SESSION_HEADER,
    }
)


class WorkerPeers:
    """The other workers of this host, and `hosts`; made by `WorkerPeers.joined`."""

    def __init__(self, folder: Path, name: str, listening: socket.socket) -> None:
        self.listening = listening
        self.hosts: KnownHosts | None = None
        self.name = name
        self._folder = folder

    @classmethod
    @contextmanager
    def joined(cls, folder: Path) -> Iterator[WorkerPeers]:
        """Listen in the workers' folder for as long as the block lasts."""
        name = secrets.token_hex(_NAME_BYTES)
        path = folder / name
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(str(path))
            listening.listen()
            try:
                yield cls(folder, name, listening)
            finally:
                path.unlink(missing_ok=True)

    def exchange_id(self) -> str:
        """Return an id for an exchange of this worker."""
        return self.name + new_exchange_id()[len(self.name) :]

    def candidates(self, scope: Scope) -> list[Path]:
        """Return the sockets of workers here to which a call that is unknown here may belong."""
        exchange = named_exchange(scope)
        if exchange is not None:
            path = self._folder / exchange[: len(self.name)]
            return [path] if path in self._others() else []
        if trace_of(scope["headers"]) is None:
            return []
        return sorted(self._others())

    def _others(self) -> list[Path]:
        try:
            return [path for path in self._folder.iterdir() if path.name != self.name]
        except OSError as error:  # the folder was removed: open exchanges go on
            log.warning("the other workers cannot be found: %s", type(error).__name__)
            return []

    async def answer(self, scope: Scope, body: bytes, send: Send) -> bool:
        """Let another worker answer; False where none has the call's exchange.

        Raises `GatewayRefused` where the host that an exchange names cannot be reached.
        """
        peers: list[Path | str] = [*self.candidates(scope), *await self._hosts_for(scope)]
        for peer in peers:
            try:
                if await self._forwarded(peer, scope, body, send):
                    return True
            except (aiohttp.ClientError, OSError) as error:
                log.warning("a worker did not answer for its exchange: %s", type(error).__name__)
                if isinstance(peer, str) and named_exchange(scope) is not None:
                    raise _elsewhere(peer) from error
        return False

    async def _forwarded(self, peer: Path | str, scope: Scope, body: bytes, send: Send) -> bool:
        """Pass a call on; a host that stands still is left once it counts as gone."""
        here = isinstance(peer, Path)
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in scope["headers"]
            if name in _FORWARDED
        ]
        # A socket is the address: that name is never resolved.
        url = f"http://{'worker' if here else peer}{scope['path']}"
        async with aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(str(peer)) if here else aiohttp.TCPConnector(),
            timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS),
        ) as session:
            watch = asyncio.create_task(self._close_when_gone(peer, session), name="gateway host")
            try:
                async with session.post(url, data=body, headers=[*headers, *_MARK]) as response:
                    if response.status == NOT_HERE:
                        return False
                    await _relay(response, send)
                    return True
            finally:
                watch.cancel()

    async def _close_when_gone(self, peer: Path | str, session: aiohttp.ClientSession) -> None:
        if isinstance(peer, str) and self.hosts is not None:
            await self.hosts.gone(peer)
            await session.close()  # what is read of it ends in an error

    async def _hosts_for(self, scope: Scope) -> list[str]:
        """Return the addresses of other hosts to which a call may belong."""
        if self.hosts is None or is_passed_on(scope):
            return []
        exchange = named_exchange(scope)
        if exchange is not None:
            address = await self.hosts.address_of(exchange)
            return [] if address is None else [address]
        return [] if trace_of(scope["headers"]) is None else await self.hosts.others()


def is_passed_on(scope: Scope) -> bool:
    """Whether another worker passes a call on: one of this host has no address."""
    return scope.get("client") is None or bool(header_of(scope["headers"], PASSED_ON))


def _elsewhere(address: str) -> GatewayRefused:
    why = f"the exchange is open at {address}, which cannot be reached from here: call it there"
    return GatewayRefused(503, "exchange_elsewhere", why)


async def _relay(response: aiohttp.ClientResponse, send: Send) -> None:
    """Pass an answer on as it arrives."""
    kept = [
        (name.lower(), value) for name, value in response.raw_headers if name.lower() in _RETURNED
    ]
    await send({"type": "http.response.start", "status": response.status, "headers": kept})
    last = b""
    try:
        while piece := await response.content.readany():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    except aiohttp.ClientError:
        # Neither [DONE] nor a whole JSON: the client sees that it is cut.
        gone = GatewayRefused(503, "model_unavailable", "the worker of the exchange has ended")
        last = frame_event(gone.body())
    await send({"type": "http.response.body", "body": last})
