"""Workers of shadows in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from cutover.cli import main
from tests.support.patience import PATIENCE_S, be_patient


def work(folder: Path, log: Path) -> None:
    """Be `cutover shadow-worker`: everything it says goes to a file."""
    be_patient(setattr, importing=False)
    sys.path.append(str(folder))
    opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(opened, descriptor)
    sys.argv = ["cutover", "shadow-worker", "--config", str(folder / "cutover.toml")]
    with pytest.MonkeyPatch.context() as patch:  # a killed one's exchanges are another's soon
        patch.setattr("cutover.cli.operate.shadow_worker.IDLE_SECONDS", 0.5)
        main()


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """The process of a worker, and the file with what it says."""

    process: ForkServerProcess
    log: Path

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def stop(self) -> int | None:
        """Ask it to stop; returns its exit status."""
        self.process.terminate()
        self.process.join(PATIENCE_S)
        return self.process.exitcode

    def said(self) -> str:
        """Return what it has said."""
        return self.log.read_text("utf-8") if self.log.exists() else ""


@contextmanager
def worker_process(folder: Path, name: str = "worker") -> Iterator[WorkerProcess]:
    """Start a worker of the deployment in a folder; whatever happens, it ends."""
    context = multiprocessing.get_context("forkserver")
    log = folder / f"{name}.log"
    process = context.Process(target=work, args=(folder, log))
    process.start()
    try:
        yield WorkerProcess(process, log)
    finally:
        process.kill()
        process.join()
