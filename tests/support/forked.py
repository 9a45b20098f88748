"""Modules in processes of their own, forked from one that has imported the project.

`FORKED_WITH` in tests/conftest.py lists what it has imported. A start of the interpreter would take
two seconds of a processor; what a test is about that start, it asks of `subprocess`.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TextIO

from tests.support.patience import PATIENCE_S


@dataclass(frozen=True)
class ForkedModule:
    """A process that runs a module, and its standard streams but for errors."""

    process: ForkServerProcess
    stdin: TextIO
    stdout: TextIO

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def wait(self) -> int:
        """Wait for its end; returns its exit status, the negative signal where one ended it."""
        self.process.join(PATIENCE_S)
        assert self.process.exitcode is not None, "it did not end"
        return self.process.exitcode


@contextmanager
def forked_module(
    module: str, *arguments: str, cwd: Path, log: Path | None = None, **environ: str
) -> Iterator[ForkedModule]:
    """Run `python -m module …` in a folder; whatever happens, it ends.

    Errors go to the file `log`, or else where those of the tests go.
    """
    context = multiprocessing.get_context("forkserver")
    (read, stdout), (stdin, write) = context.Pipe(duplex=False), context.Pipe(duplex=False)
    process = context.Process(
        target=_run_module, args=((module, *arguments), cwd, environ, (stdin, stdout), log)
    )
    process.start()
    for theirs in (stdin, stdout):
        theirs.close()
    with (
        os.fdopen(os.dup(read.fileno()), encoding="utf-8") as out,
        os.fdopen(os.dup(write.fileno()), "w", encoding="utf-8", buffering=1) as into,
    ):
        for ours in (read, write):
            ours.close()
        try:
            yield ForkedModule(process, into, out)
        finally:
            process.kill()
            process.join()


def _run_module(
    command: tuple[str, ...],
    cwd: Path,
    environ: Mapping[str, str],
    streams: tuple[Connection, Connection],
    log: Path | None,
) -> None:
    os.environ.update(environ)
    os.chdir(cwd)
    stdin, stdout = streams
    os.dup2(stdin.fileno(), 0)
    os.dup2(stdout.fileno(), 1)
    # The descriptors stay open where a command replaces the files.
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    for inherited in streams:
        inherited.close()
    if log is not None:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    sys.argv = [*command]
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)
