"""A command: an argument list, never a shell, that takes all it has started with it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from effects.tasks import ended
from effects.workers import supervisor
from effects.workers.action import ReportLine

GRACE_SECONDS: Final = 2.0
"""From SIGTERM to SIGKILL."""
_DRAIN_SECONDS: Final = 0.5
"""For what is left in the pipe once the process group is gone."""
_READ: Final = 65_536
"""Bytes; what a pipe holds at most."""
_LONGEST_LINE: Final = 4_096
_LINES_OF_A_PIECE: Final = 20
"""Are reported, the others only counted: no program can keep the loop busy with short lines."""
_ANSWER: Final = 32
_EXITED: Final = 1.0
"""For the supervisor to end after what it supervises."""
_LINE_END: Final = re.compile(rb"[\r\n]+")
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


class CommandEnd(NamedTuple):
    """How a command ended: its exit status (negative: the signal that ended it), and its output.

    `output` is the last of it, `left_out` the bytes before that.
    """

    status: int
    output: str
    left_out: int


class Tail:
    """The last `most` bytes of what it is fed; `left_out` counts those before."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self.left_out = 0

    def feed(self, piece: bytes) -> None:
        """Add the next bytes."""
        self._pieces.append(piece)
        self._size += len(piece)
        while (over := self._size - self._most) > 0:
            first = self._pieces.popleft()
            if len(first) > over:
                self._pieces.appendleft(first[over:])
            dropped = min(len(first), over)
            self._size -= dropped
            self.left_out += dropped

    @property
    def bytes(self) -> bytes:
        """The bytes that are left."""
        return b"".join(self._pieces)


class _Lines:
    """Reports the lines of an output as they come; of a line that is too long its beginning."""

    def __init__(self, report: ReportLine) -> None:
        self._report = report
        self._begun = b""

    def feed(self, piece: bytes) -> None:
        *lines, rest = _LINE_END.split(self._begun + piece, _LINES_OF_A_PIECE)
        for line in lines:
            self._tell(line)
        if left_out := max(rest.count(b"\n"), rest.count(b"\r")):
            self._report("", left_out)
        begins = 1 + max(rest.rfind(b"\n"), rest.rfind(b"\r"))
        self._begun = rest[begins : begins + _LONGEST_LINE]

    def flush(self) -> None:
        self._tell(self._begun)
        self._begun = b""

    def _tell(self, line: bytes) -> None:
        if text := plain(line[:_LONGEST_LINE]).strip():
            self._report(text)


def plain(output: bytes) -> str:
    """Return the text of a program's output, without the codes that colour a terminal."""
    return _ESCAPES.sub("", output.decode("utf-8", "replace"))


async def run_command(
    argv: Sequence[str],
    *,
    folder: Path,
    environ: Mapping[str, str],
    most: int,
    report: ReportLine,
    grace: float = GRACE_SECONDS,
) -> CommandEnd:
    """Run a program to its end; the last `most` bytes of its output are stored, lines reported.

    Cancelling it ends the program with all it has started, by SIGTERM and after `grace` seconds by
    SIGKILL; so does the end of this process, however it comes. When the program ends by itself, its
    process group ends with it, and what has left that group, as a daemon does, goes on. Raises
    `OSError` where the program cannot be started.
    """
    async with _pipe() as (output, writing):
        control, supervised = socket.socketpair()
        with control:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", supervisor.__file__, str(grace), *argv),
                    stdin=supervised.fileno(),
                    stdout=writing,
                    stderr=writing,
                    cwd=folder,
                    env=environ,
                    start_new_session=True,
                )
            finally:
                supervised.close()
                os.close(writing)
            tail, lines = Tail(most), _Lines(report)
            reading = asyncio.create_task(
                _read(output.reader, tail, lines), name=f"output of {argv[0]}"
            )
            try:
                with suppress(OSError):
                    control.send(b"\n")
                await process.wait()
                _kill_group(process)
                await asyncio.wait([reading], timeout=_DRAIN_SECONDS)
                output.close()
                await reading
            except asyncio.CancelledError:
                control.close()
                await ended(_gone(process, grace))
                raise
            finally:
                reading.cancel()
                await asyncio.wait([reading])
            answer = control.recv(_ANSWER).decode()
    lines.flush()
    if answer.startswith("E"):
        raise OSError(int(answer[1:]), os.strerror(int(answer[1:])), argv[0])
    # Without an answer the supervisor itself was killed.
    return CommandEnd(int(answer or process.returncode or 0), plain(tail.bytes), tail.left_out)


class _Output(NamedTuple):
    """The end of a pipe that is read."""

    reader: asyncio.StreamReader
    transport: asyncio.ReadTransport
    descriptor: int

    def close(self) -> None:
        """End the reader behind what the pipe holds, though a daemon may hold the pipe open."""
        if not self.transport.is_closing():
            with suppress(BlockingIOError):
                if piece := os.read(self.descriptor, _READ):  # at the end none may be fed
                    self.reader.feed_data(piece)
            self.transport.close()


@asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[_Output, int]]:
    """Open a pipe: its output, and the descriptor to write to, which the caller closes.

    The pipes that asyncio makes hold up `Process.wait` until the last process that has one ends.
    """
    reading, writing = os.pipe()
    try:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", 0)
        )
    except BaseException:
        os.close(writing)
        raise
    try:
        yield _Output(reader, transport, reading), writing
    finally:
        transport.close()


async def _read(output: asyncio.StreamReader, tail: Tail, lines: _Lines) -> None:
    while piece := await output.read(_READ):
        tail.feed(piece)
        lines.feed(piece)


async def _gone(process: Process, grace: float) -> None:
    """Wait until the supervisor has ended everything."""
    with suppress(TimeoutError):
        async with asyncio.timeout(grace + supervisor.KILL_SECONDS + _EXITED):
            await process.wait()
    _kill_group(process)
    await process.wait()


def _kill_group(process: Process) -> None:
    # Its session is its own: the group has the number of its first process.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
