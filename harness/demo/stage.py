"""Where the demo plays: its folder, the router in it, and the commands that a user would type."""

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import typer

from cutover.errors import CutoverError
from cutover.records import RunRecord
from harness.server.apps import START_SECONDS, stop
from loadtests.simulator import Simulator
from router.captures import CaptureReader, Store


class ActFailed(CutoverError):
    """An act did not do what it says."""

    def __init__(self, act: str, *, problem: str) -> None:
        super().__init__(f"{act}: {problem}")


@dataclass(slots=True)
class Demo:
    """The folder of a demo, the model, and a client of the router that runs at the moment."""

    folder: Path
    model: Simulator
    client: httpx.AsyncClient
    act: str = ""
    _router: asyncio.subprocess.Process = field(init=False)

    @property
    def log(self) -> Path:
        """Where the router and the commands log."""
        return self.folder / "demo.log"

    def open_act(self, number: int, title: str) -> None:
        """Head an act."""
        self.act = f"act {number}"
        typer.echo(f"\nAct {number} of 6. {title}")

    def show(self, *lines: str) -> None:
        """Print lines of what came out."""
        typer.echo("\n".join(f"    {one}" for one in lines))

    def check(self, holds: object, problem: str) -> None:
        """Raise `ActFailed` unless something holds."""
        if not holds:
            raise ActFailed(self.act, problem=f"{problem}; see {self.log}")

    @asynccontextmanager
    async def serving(self, *options: str) -> AsyncIterator[None]:
        """Run `cutover serve`; on leaving it drains and ends."""
        with self.log.open("ab") as log:
            self._router = await self._start("serve", *options, stdout=log, stderr=log)
        try:
            yield
        finally:
            await stop(self._router)

    async def ready(self, *options: str) -> None:
        """Wait until the router that was started with some options is ready."""
        typer.echo(f"  $ {shlex.join(['cutover', 'serve', *options])} &")
        async with asyncio.timeout(START_SECONDS):
            while True:
                self.check(self._router.returncode is None, "the router has ended")
                with suppress(httpx.TransportError):
                    if (await self.client.get("/readyz")).is_success:
                        return
                await asyncio.sleep(0.1)

    async def run(self, *arguments: str, ends: Collection[int] = (0,)) -> list[str]:
        """Run a command to its end, and return the lines that it printed.

        Raises `ActFailed` where it ends with another status.
        """
        typer.echo(f"  $ {shlex.join(['cutover', *arguments])}")
        with self.log.open("ab") as log:
            command = await self._start(*arguments, stdout=asyncio.subprocess.PIPE, stderr=log)
        try:
            printed, _ = await command.communicate()
        finally:
            await stop(command)
        lines = printed.decode("utf-8", "replace").rstrip().splitlines()
        self.check(command.returncode in ends, f"it ended with {command.returncode}: {lines}")
        return lines

    async def _start(self, *arguments: str, **streams: Any) -> asyncio.subprocess.Process:
        """Start a command in a session of its own, so that whatever it starts can be ended."""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "harness", *arguments),
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]),
                "OPENAI_BASE_URL": self.model.base_url,
                "OPENAI_API_KEY": "none",
            },
            start_new_session=True,
            **streams,
        )

    async def change(self, flow: str, **switches: Any) -> None:
        """Change switches of a flow over HTTP, as an operator does."""
        answer = await self.client.post("/cutover/flags", json={"flow": flow, **switches})
        self.check(answer.is_success, f"the switches were refused: {answer.text}")

    async def status(self, holds: Callable[[Any], bool] = bool, within: float = 20.0) -> Any:
        """Return what the router says of itself, once something holds of it."""
        async with asyncio.timeout(within):
            while True:
                status = (await self.client.get("/cutover/status")).json()
                if holds(status):
                    return status
                await asyncio.sleep(0.1)

    def lines(self) -> list[RunRecord]:
        """Return all lines of the captures."""
        return list(CaptureReader(Store(str(self.folder / "captures"))))

    @property
    def bought(self) -> int:
        """How many answers the model was asked for."""
        return sum(one.path == "/v1/chat/completions" for one in self.model.requests)
