"""Processes of a measurement: modules of this project, run by this interpreter."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from contract.errors import CutoverError

ROOT = Path(__file__).resolve().parent.parent
ANNOUNCED = "listening on "
STOP_SECONDS = 30.0
_LAST_LETTERS = 500


def module_command(module: str, *arguments: str) -> list[str]:
    """Command line that runs a module in this interpreter."""
    return [sys.executable, "-m", module, *arguments]


def child_environment(**more: str) -> dict[str, str]:
    """Environment in which a child finds this project, installed or not."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **more, "PYTHONPATH": os.pathsep.join(paths)}


class ServerDidNotStart(CutoverError):
    """A server ended, or wrote something else, before it wrote its address."""

    def __init__(self, command: Sequence[str], output: str, log: Path | None) -> None:
        end = log.read_text("utf-8", "replace")[-_LAST_LETTERS:] if log else ""
        logged = f"; its log {str(log)!r} ends {end!r}" if log else ""
        super().__init__(f"{' '.join(command[1:])!r} did not start: it wrote {output!r}{logged}")


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A running server."""

    url: str
    pid: int


@contextmanager
def server_process(
    module: str, *arguments: str, log: Path | None = None, **environ: str
) -> Iterator[ServerProcess]:
    """Start `python -m module …`, which writes `listening on URL`, and end it on leaving.

    Ctrl-C does not reach it: it is ended once, and in order. Raises `ServerDidNotStart`.
    """
    command = module_command(module, *arguments)
    with (
        log.open("ab") if log else nullcontext() as errors,
        subprocess.Popen(  # noqa: S603 - our own module, in this interpreter
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=child_environment(**environ),
            start_new_session=True,
        ) as process,
    ):
        try:
            output = process.stdout.readline() if process.stdout is not None else ""
            _, announced, url = output.partition(ANNOUNCED)
            if not announced:
                raise ServerDidNotStart(command, output, log)
            yield ServerProcess(url.strip(), process.pid)
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def own_port(behind: int = 0) -> Iterator[int]:
    """Yield a port of loopback on which nothing listens until the caller does, again and again.

    And so many `behind` it. A port that is merely free is handed to the next process that asks for
    one, be it for the own end of a connection: then something else listens, or a server cannot come
    back.
    """
    with ExitStack() as stack:
        while True:
            port = 0
            try:
                with ExitStack() as attempt:
                    for number in range(1 + behind):
                        bound = _bound(attempt, port and port + number)
                        port = port or bound
                    stack.push(attempt.pop_all())
                    break
            except OSError:
                continue  # one behind it is another's
        yield port


def _bound(stack: ExitStack, port: int) -> int:
    held = stack.enter_context(socket.socket())
    held.bind(("127.0.0.1", port))
    # Set afterwards: the port was nobody's, and from now on a server that reuses it may bind.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return int(held.getsockname()[1])
