"""Routers in processes of their own: what only the operating system can do to one is done here.

They are forked from a process that has imported what a router needs (`FORKED_WITH` in
tests/conftest.py): a start of the interpreter with both stacks takes two seconds of a processor.
`cutover serve` as it is typed starts elsewhere.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from cutover.cli import main
from router.telemetry import process
from tests.support.deployment import KEY, PLANTED_KEY, Answer, Setup, configuration, moment
from tests.support.patience import PATIENCE_S, be_patient


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What a process may use: bytes of memory, by its control group, and descriptors; 0: as it is.

    The control group is a folder with the file that Linux would have there: a test may not move
    its processes between groups. Descriptors are limited by the system.
    """

    memory: int = 0
    descriptors: int = 0

    def apply(self, folder: Path) -> None:
        """Limit this process."""
        if self.memory:
            (folder / "memory.max").write_text(f"{self.memory}\n", "ascii")
            process.CONTROL_GROUPS = folder
        if self.descriptors:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.descriptors, self.descriptors))


def serve(
    folder: Path, arguments: tuple[str, ...], environ: Mapping[str, str], limits: ProcessLimits
) -> None:
    """Be `cutover serve`: standard output goes to `out` in a folder, errors to `log`.

    Modules beside the configuration can be imported.
    """
    be_patient(setattr, importing=True)
    limits.apply(folder)
    sys.path.append(str(folder))
    os.environ.update(environ)
    for descriptor, name in ((1, "out"), (2, "log")):
        opened = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, descriptor)
    sys.argv = ["cutover", "serve", "--config", str(folder / "cutover.toml"), *arguments]
    main()


@dataclass(frozen=True, slots=True)
class RouterChild:
    """The process of a router."""

    process: ForkServerProcess

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()

    def terminate(self) -> None:
        """Ask it to stop."""
        self.process.terminate()

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    async def wait(self) -> int | None:
        """Wait for its end; returns its exit status."""
        await asyncio.to_thread(self.process.join)
        return self.process.exitcode


@dataclass(frozen=True, slots=True)
class RouterProcess:
    """A router in a process of its own, or several workers on one address."""

    url: str
    child: RouterChild

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
    folder: Path,
    provider: str,
    setup: Setup,
    *arguments: str,
    limits: ProcessLimits | None = None,
) -> AsyncIterator[RouterProcess]:
    """Start `cutover serve`; whatever happens, its process ends."""
    (folder / "cutover.toml").write_text(configuration(folder, provider, setup), "utf-8")
    environ = {KEY: PLANTED_KEY, **setup.environ}
    async with configured_router(folder, environ, *arguments, limits=limits) as router:
        yield router


@asynccontextmanager
async def configured_router(
    folder: Path,
    environ: Mapping[str, str],
    *arguments: str,
    limits: ProcessLimits | None = None,
) -> AsyncIterator[RouterProcess]:
    """Start `cutover serve` on the configuration in a folder; whatever happens, it ends."""
    out = folder / "out"
    out.unlink(missing_ok=True)
    context = multiprocessing.get_context("forkserver")
    given = (folder, ("--port", "0", *arguments), environ, limits or ProcessLimits())
    started = context.Process(target=serve, args=given)
    started.start()
    child = RouterChild(started)
    try:
        while not (out.exists() and b"\n" in out.read_bytes()):
            assert started.is_alive(), (folder / "log").read_text("utf-8")
            await moment()
        said = out.read_text("utf-8").splitlines()[0]
        yield RouterProcess(said.rpartition(" ")[2], child)
    finally:
        started.kill()
        await child.wait()
