"""A command: an argument list, never a shell, that ends with all it has started."""

import asyncio
import os
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from typing import Final, cast

from effects.workers.registry import Progress, Report, Result

GRACE_SECONDS: Final = 2.0
"""From SIGTERM to SIGKILL."""
LINES_AT_MOST: Final = 1_000
"""Lines that are reported; of more, only the last `TAIL` are in the result."""
TAIL: Final = 20
_LONGEST_LINE: Final = 2_000  # characters
_READ: Final = 65_536
_LOOK_SECONDS: Final = 0.2  # how often an end is noticed whose output a daemon holds open
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


async def run_command(argv: Sequence[str], folder: str, seconds: float) -> AsyncIterator[Report]:
    """Run a program: yield its lines as progress, and then its result.

    Its process group is ended when it ends, when it takes longer than `seconds`, and when the
    caller leaves: by SIGTERM, and `GRACE_SECONDS` later by SIGKILL. A daemon that has made a group
    of its own goes on.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, cwd=folder, start_new_session=True
        )
    except (OSError, ValueError):
        yield Result(ok=False, message=f"{argv[0]!r} cannot be started in {folder!r}")
        return
    tail, count, late = deque[str](maxlen=TAIL), 0, False
    try:
        async with aclosing(_lines(process, seconds)) as lines:  # type: ignore[type-var] # a generator
            async for line in lines:
                tail.append(line)
                count += 1
                if count <= LINES_AT_MOST:
                    yield Progress(line)
    except TimeoutError:
        late = True
    finally:
        await asyncio.shield(_end(process))
    message = f"stopped after {seconds:g} s" if late else f"ended with status {process.returncode}"
    data = {"status": process.returncode, "lines": count, "output": list(tail)}
    yield Result(ok=not late and process.returncode == 0, message=message, data=data)


async def _lines(process: Process, seconds: float) -> AsyncIterator[str]:
    """Yield lines until the program or its output ends; raises `TimeoutError` after `seconds`."""
    output = cast("asyncio.StreamReader", process.stdout)  # since it was made with a pipe
    deadline, begun = asyncio.get_running_loop().time() + seconds, b""
    while True:
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                piece = await output.read(_READ)
        except TimeoutError:
            piece = None
        if piece:
            *whole, begun = re.split(rb"[\r\n]+", begun + piece)
            begun = begun[:_READ]
            for line in whole:
                if text := _plain(line):
                    yield text
        elif piece is not None or process.returncode is not None:
            break
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError
    if text := _plain(begun):
        yield text


def _plain(line: bytes) -> str:
    """Return a line's text without the codes that colour a terminal."""
    return _ESCAPES.sub("", line.decode(errors="replace")).strip()[:_LONGEST_LINE]


async def _end(process: Process) -> None:
    """End the process group, and wait for its first process."""
    group = process.pid  # its session is its own: the group has its number
    with suppress(ProcessLookupError, PermissionError, TimeoutError):
        os.killpg(group, signal.SIGTERM)
        async with asyncio.timeout(GRACE_SECONDS):
            await process.wait()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)  # what the first process left behind, too
    await process.wait()
