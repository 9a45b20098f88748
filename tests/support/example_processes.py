"""An example of two remote behind a router, running as its page says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from typer.testing import CliRunner

from contract.flows import SPECS
from cutover.application import application
from cutover.cli import app
from cutover.server.serve import server
from cutover.wiring.composition import Services
from router.config.watcher import SettingsWatcher
from router.routing.assignment import assign
from tests.support.deployment import listening, tasks, until

EXAMPLES = Path(__file__).parents[2] / "examples"
PORTS = ("9001", "9002")


@dataclass(frozen=True)
class Example:
    """An example, running."""

    url: str
    services: Services
    session: aiohttp.ClientSession
    remote: Mapping[str, asyncio.subprocess.Process]

    async def settled(self) -> None:
        """Wait until all are compared and written."""
        await until(lambda: not self.services.router.ledger.open and not tasks("close"))

    def assigned(self, flow: str, stack: str) -> str:
        """Find a route key that goes to a stack."""
        settings = self.services.router.settings()
        keys = (f"k{number}" for number in range(100))
        rules, salt = settings.flows[flow], settings.rollout.salt
        return next(key for key in keys if assign(rules, salt, key, None).stack == stack)

    async def stop(self, name: str) -> None:
        """Stop a service."""
        self.remote[name].terminate()
        await self.remote[name].wait()


@asynccontextmanager
async def running(
    example: Path, commands: Mapping[str, Sequence[str]], folder: Path
) -> AsyncIterator[Example]:
    """Start the remote by name and, in front of them, a router on the example's configuration.

    Each tells the port it was given, which takes the place of the one in the configuration.
    """
    text = (example / "cutover.toml").read_text("utf-8")
    remote: dict[str, asyncio.subprocess.Process] = {}
    try:
        for (name, command), port in zip(commands.items(), PORTS, strict=True):
            process = await asyncio.create_subprocess_exec(
                *command, cwd=example, stdout=asyncio.subprocess.PIPE
            )
            remote[name] = process
            assert process.stdout is not None
            told = (await process.stdout.readline()).decode()
            text = text.replace(port, told.partition("127.0.0.1:")[2].partition("/")[0])
        path = folder / "cutover.toml"
        path.write_text(text, "utf-8")
        async with (
            application(SettingsWatcher(path, SPECS), {}) as built,
            listening(server(built.app, built.services.router, 1)) as url,
            aiohttp.ClientSession() as session,
        ):
            yield Example(url, built.services, session, remote)
    finally:
        for process in remote.values():
            if process.returncode is None:
                process.terminate()
                await process.wait()
            process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio leaves its pipe open


async def invoked(*command: str) -> Any:
    """Run a command of the router's."""
    return await asyncio.to_thread(CliRunner().invoke, app, list(command))
