"""Programs as processes of their own, the router above all: started, looked at, stopped, killed."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import httpx
import psutil
import tomlkit

ROOT = Path(__file__).parents[2]
STARTS_WITHIN, STOPS_WITHIN = 90.0, 90.0


def free_port() -> int:
    """Return a port that is free at this moment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def share(percent: float, **more: Any) -> dict[str, Any]:
    """Return a flow's table by which a share goes to graph."""
    return {"enable_langgraph": True, "langgraph_percent": percent, **more}


@dataclass
class Program:
    """A program that listens on a port, `PORT` in its command; its log is `folder/PORT.log`."""

    folder: Path
    _: KW_ONLY
    command: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None
    statuses: ClassVar[set[int]] = {0, -signal.SIGTERM}
    """With what it may end when it is stopped."""

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it has logged so far, over all its lives."""
        return self._log.read_text("utf-8")

    @property
    def _log(self) -> Path:
        return self.folder / f"{self.port}.log"

    @property
    def alive(self) -> bool:
        """Whether it was started, and has not ended."""
        return self._process is not None and self._process.poll() is None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.alive:
            self.send(signal.SIGCONT)
            assert await self.stop() in self.statuses, self.log[-4000:]

    def __enter__(self) -> Self:
        asyncio.run(self.start())
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run(self.__aexit__())

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        told = {"PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "none", "PORT": str(self.port)}
        environment = {**os.environ, **told, **self.environment}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - it starts in milliseconds
                self.line(), cwd=self.folder, env=environment, stdout=log, stderr=log
            )
        try:
            async with asyncio.timeout(STARTS_WITHIN):
                while not await self.answers():
                    assert self.alive, self.log[-4000:]
                    await asyncio.sleep(0.05)  # a process of its own has no clock to move
        except BaseException:
            self._process.kill()
            raise

    def line(self) -> Sequence[str]:
        """Return what is run."""
        return [str(self.port) if part == "PORT" else part for part in self.command]

    async def answers(self) -> bool:
        """Whether it listens."""
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    async def stop(self) -> int:
        """Have it drain; return its status."""
        self.send(signal.SIGTERM)
        return await self.ended()

    async def kill(self) -> None:
        """End it at once."""
        self.send(signal.SIGKILL)
        await self.ended()

    async def ended(self) -> int:
        """Wait for its end; return its status."""
        assert self._process is not None
        return await asyncio.to_thread(self._process.wait, STOPS_WITHIN)


@dataclass
class RouterProcess(Program):
    """`python -m MODULE serve` with a configuration."""

    tables: dict[str, Any]
    _: KW_ONLY
    module: str = "harness"
    arguments: tuple[str, ...] = ()
    statuses: ClassVar[set[int]] = {0}

    @property
    def process(self) -> psutil.Process:
        """Its memory and descriptors."""
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def line(self) -> Sequence[str]:
        """Return what is run, and write its configuration."""
        config = self.folder / f"{self.port}.toml"
        server = {"port": self.port, **self.tables.get("server", {})}
        config.write_text(tomlkit.dumps({**self.tables, "server": server}))
        line = [sys.executable, "-m", self.module, "serve", "--config", str(config)]
        return [*line, *self.arguments]

    async def answers(self) -> bool:
        """Whether it is ready."""
        if not await super().answers():  # making an HTTP client takes longer
            return False
        try:
            async with httpx.AsyncClient(timeout=10) as client:
                return (await client.get(f"{self.url}/readyz")).is_success
        except httpx.TransportError:
            return False

    async def status(self) -> dict[str, Any]:
        """Return what it says of itself."""
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"{self.url}/cutover/status", timeout=30)
        said: dict[str, Any] = answer.json()
        return said
