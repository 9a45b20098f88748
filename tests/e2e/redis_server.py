"""A Redis of the test's own, which can be killed and started again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from loadtests.processes import own_port
from tests.support.programs import installed


class RedisServer:
    """A server process on a port of loopback that keeps nothing on disk."""

    def __init__(self, program: str, folder: Path, port: int) -> None:
        self._program = program
        self._folder = folder
        self._port = port
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Return its address."""
        return f"redis://127.0.0.1:{self._port}/0"

    async def start(self) -> None:
        """Start it, on the same port as before, and wait until it answers."""
        arguments = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = await asyncio.create_subprocess_exec(
            self._program,
            *(*arguments, "--port", str(self._port), "--dir", str(self._folder)),
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if b"ready to accept connections" in line.lower():
                return
        pytest.fail("redis-server ended before it was ready")

    async def kill(self) -> None:
        """End it without a word, and everything it knew; idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.communicate()


@asynccontextmanager
async def own_redis(folder: Path) -> AsyncIterator[RedisServer]:
    """Start a server; without the program skip, and fail under CI."""
    program = installed("redis-server", "redis-server")
    with own_port() as port:
        server = RedisServer(program, folder, port)
        await server.start()
        try:
            yield server
        finally:
            await server.kill()
