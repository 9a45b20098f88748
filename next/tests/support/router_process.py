"""A router as a process of its own: started, looked at, stopped, killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

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


@dataclass
class RouterProcess:
    """`python -m MODULE serve` with a configuration; its log is `folder/PORT.log`."""

    folder: Path
    tables: dict[str, Any]
    module: str = "harness"
    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it has logged so far, over all its lives."""
        return self._log.read_text("utf-8")

    @property
    def process(self) -> psutil.Process:
        """Its memory and descriptors."""
        assert self._process is not None
        return psutil.Process(self._process.pid)

    @property
    def _log(self) -> Path:
        return self.folder / f"{self.port}.log"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.send(signal.SIGCONT)
            assert await self.stop() == 0, self.log[-4000:]

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        config = self.folder / f"{self.port}.toml"
        server = {"port": self.port, **self.tables.get("server", {})}
        config.write_text(tomlkit.dumps({**self.tables, "server": server}))
        command = [sys.executable, "-m", self.module, "serve", "--config", str(config)]
        command += self.arguments
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "none"}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - it starts in milliseconds
                command, cwd=self.folder, env={**environment, **self.environment}, stderr=log
            )
        async with asyncio.timeout(STARTS_WITHIN), httpx.AsyncClient() as client:
            while True:
                assert self._process.poll() is None, self.log[-4000:]
                try:
                    answer = await client.get(f"{self.url}/readyz", timeout=10)
                except httpx.TransportError:
                    answer = None
                if answer is not None and answer.status_code == httpx.codes.OK:
                    return
                await asyncio.sleep(0.05)  # a process of its own has no clock to move

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

    async def status(self) -> dict[str, Any]:
        """Return what it says of itself."""
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"{self.url}/cutover/status", timeout=30)
        said: dict[str, Any] = answer.json()
        return said
