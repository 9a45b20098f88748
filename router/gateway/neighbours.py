"""Workers of one host: a call goes on to the one whose exchange it belongs to.

Every worker listens on a socket of its own in a folder all of them know, and begins the ids of its
exchanges with that socket's name.
"""

from __future__ import annotations

import logging
import secrets
import socket
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import aiohttp

from router.gateway.correlating import named
from router.gateway.refusals import GatewayRefused
from router.gateway.writing import event
from router.traces import trace_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.types import Scope, Send

log = logging.getLogger(__name__)

NOT_HERE: Final = 421
"""Misdirected request: what a worker answers another for an exchange that is none of its own."""
_NAME_BYTES: Final = 3
_TOLD: Final = frozenset(
    {
        b"authorization",
        b"content-type",
        b"traceparent",
        b"x-cutover-exchange",
        b"x-cutover-role",
        b"x-exchange-id",
    }
)
_RETURNED: Final = frozenset(
    {b"cache-control", b"content-type", b"retry-after", b"x-accel-buffering", b"x-should-retry"}
)


class Neighbours:
    """The workers of a host, this one among them; made by `Neighbours.joined`."""

    def __init__(self, folder: Path, name: str, listening: socket.socket) -> None:
        self.listening = listening
        self._folder = folder
        self._name = name

    @classmethod
    @contextmanager
    def joined(cls, folder: Path) -> Iterator[Neighbours]:
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
        """Make an id for an exchange of this worker."""
        return self._name + uuid.uuid4().hex[len(self._name) :]

    def asked(self, scope: Scope) -> list[Path]:
        """Say which other workers a call that is not known here may belong to."""
        if scope.get("client") is None:
            return []  # by one of them: whoever has it is asked first
        exchange = named(scope["headers"], scope["path_params"].get("exchange"))
        if exchange is not None:
            path = self._folder / exchange[: len(self._name)]
            return [path] if path in self._others() else []
        if trace_of(scope["headers"]) is None:
            return []
        return sorted(self._others())

    def _others(self) -> list[Path]:
        try:
            return [path for path in self._folder.iterdir() if path.name != self._name]
        except OSError as error:  # somebody has cleared the place: what is open here goes on
            log.warning("the other workers cannot be found: %s", type(error).__name__)
            return []

    async def answered(self, scope: Scope, body: bytes, send: Send) -> bool:
        """Let another worker answer; False where none has what the call belongs to."""
        for path in self.asked(scope):
            try:
                if await _passed_on(path, scope, body, send):
                    return True
            except (aiohttp.ClientError, OSError) as error:
                log.warning("a worker did not answer for its exchange: %s", type(error).__name__)
        return False


async def _passed_on(path: Path, scope: Scope, body: bytes, send: Send) -> bool:
    headers = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in scope["headers"]
        if name in _TOLD
    ]
    async with (
        aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(str(path)),
            timeout=aiohttp.ClientTimeout(total=None),
        ) as session,
        # No name that has to be looked up; the path is the one that was asked for.
        session.post(f"http://worker{scope['path']}", data=body, headers=headers) as response,
    ):
        if response.status == NOT_HERE:
            return False
        await _returned(response, send)
        return True


async def _returned(response: aiohttp.ClientResponse, send: Send) -> None:
    """Pass an answer on as it comes."""
    kept = [
        (name.lower(), value) for name, value in response.raw_headers if name.lower() in _RETURNED
    ]
    await send({"type": "http.response.start", "status": response.status, "headers": kept})
    last = b""
    try:
        while piece := await response.content.readany():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    except aiohttp.ClientError:
        # It died over it. No [DONE], and no whole JSON: nobody takes this for all of it.
        gone = GatewayRefused(503, "model_unavailable", "the worker that had the exchange is gone")
        last = event(gone.body())
    await send({"type": "http.response.body", "body": last})
