"""A real shell in an empty folder, into which a page is typed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests.conftest import ROOT
from tests.docs.transcripts import Typed
from tests.support.deployment import moment, until
from tests.support.patience import PATIENCE_S

_END = b"--- what was typed is done ---\n"
_BEGUN = re.compile(r"& (?P<name>\w+)=\$!$")
_LISTENS = re.compile(r"--port (\d+)")


class Terminal:
    """Types commands into a shell; what a person would wait for, is waited for.

    That is: a server until it listens, the router until it has written what a report is made of
    and has read an edit of `cutover.toml`.
    """

    def __init__(self, shell: asyncio.subprocess.Process, folder: Path, router: int) -> None:
        self._shell = shell
        self._folder = folder
        self._router = router

    async def type(self, one: Typed) -> str:
        """Type a command; returns what came, without what stands blank at the ends of lines."""
        async with asyncio.timeout(PATIENCE_S):
            came = await self._answer(one)
        return "".join(f"{line.rstrip()}\n" for line in came.splitlines())

    async def _answer(self, one: Typed) -> str:
        if one.command.startswith("cutover diff"):
            await self._settled()
        edited = "sed" in one.command and "cutover.toml" in one.command
        log = self._folder / "router.log"
        before = log.read_text("utf-8") if edited else ""
        came = await self._typed(one.command)
        if edited:
            await until(lambda: "settings" in log.read_text("utf-8")[len(before) :])
        port = _LISTENS.search(one.command)
        if _BEGUN.search(one.command) and (port or one.command.startswith("cutover serve")):
            await self._listening(int(port[1]) if port else self._router)
        return came

    async def _typed(self, command: str) -> str:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(command.encode() + b"\necho '" + _END[:-1] + b"'\n")
        came = await self._shell.stdout.readuntil(_END)
        return came.removesuffix(_END).decode()

    async def _listening(self, port: int) -> None:
        """Wait until a server does."""
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await moment()
            else:
                writer.close()
                return

    async def _settled(self) -> None:
        """Wait until all is compared and written."""
        url = f"http://127.0.0.1:{self._router}/readyz"
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.get(url) as response:
                    state = await response.json()
                if not state["ledger"]["open"] and not state["captures"]["waiting"]:
                    return
                await moment()


@asynccontextmanager
async def terminal(folder: Path, home: Path, router: int) -> AsyncIterator[Terminal]:
    """Open a shell in a folder; what it still runs at the end is killed with it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ: Mapping[str, str] = {
        **{name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")},
        "HOME": str(home),
        "PATH": path,
        "PYTHONPATH": str(ROOT),
    }
    with (home / "stderr").open("wb") as stderr:
        shell = await asyncio.create_subprocess_exec(
            "bash",
            cwd=folder,
            env=environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
    try:
        yield Terminal(shell, folder, router)
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        await shell.wait()
        shell._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio leaves its pipe open
