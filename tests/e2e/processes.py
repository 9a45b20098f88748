"""Routers in processes of their own: what only the operating system can do to one is done here."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from loadtests.processes import child_environment
from tests.support.deployment import KEY, PLANTED_KEY, Answer, Setup, configuration
from tests.support.patience import PATIENCE_S


@dataclass(frozen=True, slots=True)
class RouterProcess:
    """A router in a process of its own, or several workers on one address."""

    url: str
    child: asyncio.subprocess.Process

    def post(self, session: aiohttp.ClientSession, body: Any) -> Any:
        """Ask the chat flow."""
        return session.post(f"{self.url}/chat/sse", data=msgspec.json.encode(body))

    async def ask(self, session: aiohttp.ClientSession, body: Any) -> Answer:
        """Ask the chat flow and read everything."""
        async with self.post(session, body) as response:
            return Answer(response.status, response.headers, await response.read())

    async def ready(self, session: aiohttp.ClientSession) -> Any:
        """Read `/readyz`."""
        async with session.get(f"{self.url}/readyz") as response:
            return await response.json()

    async def refuses(self) -> None:
        """Connect until no server listens any more."""
        host, port = self.url.removeprefix("http://").split(":")
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection(host, int(port))
                except OSError:
                    return
                writer.close()


@asynccontextmanager
async def router_process(
    folder: Path, provider: str, setup: Setup, *arguments: str
) -> AsyncIterator[RouterProcess]:
    """Start `cutover serve`; whatever happens, its process ends."""
    path = folder / "cutover.toml"
    path.write_text(configuration(folder, provider, setup), "utf-8")
    serve = ("-m", "cutover", "serve", "--config", str(path), "--port", "0", *arguments)
    with (folder / "log").open("ab") as log:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            *serve,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=child_environment(**{KEY: PLANTED_KEY, **setup.environ}),
        )
    try:
        assert child.stdout is not None
        said = (await child.stdout.readline()).decode()
        yield RouterProcess(said.rpartition(" ")[2].strip(), child)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
