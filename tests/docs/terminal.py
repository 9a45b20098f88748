"""A real shell in an empty folder, into which a page is typed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.conftest import ROOT
from tests.docs.transcripts import Typed
from tests.support.patience import PATIENCE_S

_END = b"--- what was typed is done ---\n"


class Terminal:
    """Types commands into a shell, one after the other; what must be waited for, the page does."""

    def __init__(self, shell: asyncio.subprocess.Process) -> None:
        self._shell = shell

    async def type(self, one: Typed) -> str:
        """Type a command; returns what came, without what stands blank at the ends of lines."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            self._shell.stdin.write(one.command.encode() + b"\necho '" + _END[:-1] + b"'\n")
            came = await self._shell.stdout.readuntil(_END)
        lines = came.removesuffix(_END).decode().splitlines()
        return "".join(f"{line.rstrip()}\n" for line in lines)


@asynccontextmanager
async def terminal(folder: Path, home: Path) -> AsyncIterator[Terminal]:
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
        yield Terminal(shell)
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        await shell.wait()
        shell._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio leaves its pipe open
