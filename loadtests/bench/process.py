"""Servers under measurement: each a process of its own, whose processor time can be read."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from contract.errors import CutoverError
from loadtests.children import child_environment, module_command

ANNOUNCED = "listening on "
PATIENCE_S = 10.0
# The kernel's number for "all processor time of that process", as clock_getcpuclockid(3) makes it.
_SCHEDULED = 2
_PID_SHIFT = 3


class ServerDidNotStart(CutoverError):
    """A server ended, or said something else, before it said where it listens."""

    def __init__(self, command: Sequence[str], said: str, complaint: str) -> None:
        super().__init__(
            f"{' '.join(command[1:])!r} did not start; it said {said!r} and logged {complaint!r}"
        )


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    name: str
    url: str
    pid: int

    def cpu(self) -> float:
        """Processor seconds used since its start: user and system, all its threads."""
        return process_cpu(self.pid)


def process_cpu(pid: int) -> float:
    """Give the processor seconds of another process, exact to the nanosecond."""
    return time.clock_gettime((~pid << _PID_SHIFT) | _SCHEDULED)


@contextmanager
def serving(name: str, module: str, *arguments: str, log: Path) -> Iterator[Server]:
    """Start `python -m module …`, which says `listening on URL`; end it on leaving.

    Raises:
        ServerDidNotStart: it did not say where it listens.
    """
    command = module_command(module, *arguments)
    with (
        log.open("ab") as errors,
        subprocess.Popen(  # noqa: S603 - our own module, in this interpreter
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=child_environment()
        ) as process,
    ):
        try:
            yield Server(name, _address(process, command, log), process.pid)
        finally:
            _end(process)


def _address(process: subprocess.Popen[str], command: Sequence[str], log: Path) -> str:
    said = process.stdout.readline() if process.stdout is not None else ""
    _, announced, url = said.partition(ANNOUNCED)
    if not announced:
        raise ServerDidNotStart(command, said, log.read_text("utf-8", "replace")[-500:])
    return url.strip()


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
