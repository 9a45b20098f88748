"""Services that are started here: `module:app`, each a process of uvicorn on loopback."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from cutover.errors import Unusable

log = logging.getLogger("cutover.apps")

START_SECONDS = 60.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.05


@asynccontextmanager
async def started(app: str) -> AsyncIterator[str]:
    """Start `module:app`, an ASGI app or a callable that returns one; yield its URL.

    Raises `Unusable`. A process that ends while it is needed is reported, and not started again.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve = ["--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
    # A session of its own: an interrupt at the terminal must not end it before its streams have.
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "uvicorn", app, *serve, start_new_session=True
    )
    try:
        await _listening(app, process, port)
        watching = asyncio.create_task(_watch(app, process))
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            watching.cancel()
    finally:
        await stop(process)


async def _listening(app: str, process: asyncio.subprocess.Process, port: int) -> None:
    ends = asyncio.get_running_loop().time() + START_SECONDS
    while process.returncode is None and asyncio.get_running_loop().time() < ends:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(POLL_SECONDS)
    ended = f"it ended with status {process.returncode}"
    why = f"nothing listens after {START_SECONDS:.0f} s" if process.returncode is None else ended
    hint = f"try `python -m uvicorn {app}` in this folder"
    raise Unusable(where=app, reason=f"does not start: {why}; {hint}")


async def _watch(app: str, process: asyncio.subprocess.Process) -> None:
    status = await process.wait()
    log.error("app=%s ended status=%s: requests to it fail until a restart", app, status)


async def stop(process: asyncio.subprocess.Process) -> None:
    """End a process that leads a session: in order, and after some seconds with all it started."""
    if process.returncode is None:
        process.terminate()
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    with suppress(ProcessLookupError):  # nothing is left of it
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
