"""A container engine on a unix socket: the part of Docker's HTTP API that is used here."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler

STDOUT = 1
FRAME = 16_384
"""Bytes of a log line that the engine puts into one frame."""


@dataclass
class FakeContainer:
    """A container; `log` is what it wrote, then `flood` bytes of a line without end.

    With a `terminal` its log has no frames. One that `hangs` never ends.
    """

    name: str
    state: str = "running"
    log: bytes = b""
    flood: int = 0
    terminal: bool = False
    hangs: bool = False
    after_restart: str = "running"


@dataclass
class ContainerEngine:
    """The engine's containers, and what was requested: `METHOD path`, without the version.

    `answers` False: no request is ever answered. `refuses`: a status for every one.
    """

    containers: list[FakeContainer] = field(default_factory=list)
    answers: bool = True
    refuses: int = 0
    requests: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def serving(self, folder: Path) -> AsyncIterator[str]:
        """Serve on a socket in a folder; yields the engine's address."""
        app = web.Application(middlewares=[self._noted])
        app.router.add_get("/version", self._version)
        prefix = "/{version:v[0-9.]+}/containers"
        app.router.add_get(f"{prefix}/json", self._list)
        app.router.add_get(f"{prefix}/{{name}}/json", self._inspect)
        app.router.add_get(f"{prefix}/{{name}}/logs", self._logs)
        app.router.add_post(f"{prefix}/{{name}}/restart", self._restart)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        socket = folder / "engine.sock"
        try:
            await web.UnixSite(runner, str(socket)).start()
            yield f"unix://{socket}"
        finally:
            await runner.cleanup()

    @web.middleware
    async def _noted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        _, _, path = request.path_qs.partition("/v1.44")
        self.requests.append(f"{request.method} {path or request.path}")
        if not self.answers:
            await asyncio.get_running_loop().create_future()
        if self.refuses:
            return web.json_response({"message": "secret"}, status=self.refuses)
        return await handler(request)

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"ApiVersion": "1.44", "MinAPIVersion": "1.24"})

    async def _list(self, request: web.Request) -> web.Response:
        every = request.query.get("all") in {"1", "true", "True"}
        return web.json_response(
            [
                {
                    "Id": _id(one),
                    "Names": [f"/linked/{one.name}", f"/{one.name}"],
                    "Image": "service:1",
                    "State": one.state,
                    "Status": "Up 2 hours" if one.state == "running" else "Exited (0)",
                }
                for one in self.containers
                if every or one.state == "running"
            ]
        )

    async def _inspect(self, request: web.Request) -> web.Response:
        one = self._found(request)
        return web.json_response(
            {
                "Id": _id(one),
                "Name": f"/{one.name}",
                "Config": {"Tty": one.terminal},
                "State": {"Status": one.state},
            }
        )

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        one = self._found(request)
        response = web.StreamResponse()
        await response.prepare(request)
        lines = one.log.splitlines(keepends=True)[-int(request.query["tail"]) :]
        for line in lines:
            for at in range(0, len(line), FRAME):
                piece = line[at : at + FRAME]
                await response.write(_header(one, len(piece)) + piece)
        if one.flood:
            await response.write(_header(one, one.flood))
        for at in range(0, one.flood, FRAME):
            await response.write(b"x" * min(FRAME, one.flood - at))
        if one.hangs:
            await asyncio.get_running_loop().create_future()
        return response

    async def _restart(self, request: web.Request) -> web.Response:
        one = self._found(request)
        one.state = one.after_restart
        return web.Response(status=204)

    def _found(self, request: web.Request) -> FakeContainer:
        name = request.match_info["name"]
        for one in self.containers:
            if name == one.name or _id(one).startswith(name):
                return one
        raise web.HTTPNotFound(text='{"message": "no such container"}')


def _header(container: FakeContainer, length: int) -> bytes:
    return b"" if container.terminal else struct.pack(">BxxxL", STDOUT, length)


def _id(container: FakeContainer) -> str:
    return container.name.encode().hex().ljust(64, "0")
