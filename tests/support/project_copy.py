"""A copy of the project that a test changes, and modules that run in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from tests.support.module_forks import ForkRequest
from tests.support.patience import PATIENCE_S
from tests.support.project import PACKAGES, ROOT


@dataclass(frozen=True)
class Finished:
    """A module that ran to its end."""

    status: int
    out: str
    log: str


@dataclass(frozen=True)
class ModuleFork:
    """A module that runs in a copy."""

    pid: int
    out: Path
    log: Path


@dataclass(frozen=True)
class ModuleForks:
    """Runs modules of a copy, each forked from one process that has imported what they need."""

    root: Path
    files: Path
    requests: IO[str]
    answers: IO[str]

    def start(self, *command: str, **environ: str) -> ModuleFork:
        """Start `python -m …` in the copy; the caller waits for its end."""
        name = "-".join(command).replace("/", "_")[:100]
        out, log = self.files / f"{name}.out", self.files / f"{name}.log"
        out.touch()
        request = ForkRequest([*command], environ, str(out), str(log))
        return ModuleFork(self._ask(request), out, log)

    def wait(self, fork: ModuleFork) -> Finished:
        """Wait for the end of a module."""
        status = self._ask(fork.pid)
        return Finished(status, fork.out.read_text("utf-8"), fork.log.read_text("utf-8"))

    def run(self, *command: str, **environ: str) -> Finished:
        """Run `python -m …` in the copy."""
        return self.wait(self.start(*command, **environ))

    def run_text(self, name: str, program: str, **environ: str) -> Finished:
        """Run a program as a module of the copy, under a name that no other has."""
        (self.root / f"{name}.py").write_text(program, "utf-8")
        return self.run(name, **environ)

    def _ask(self, request: ForkRequest | int) -> int:
        self.requests.write(msgspec.json.encode(request).decode() + "\n")
        return int(self.answers.readline())


def address_of(router: ModuleFork) -> str:
    """Wait until a started `cutover serve` tells its address."""
    until = time.monotonic() + PATIENCE_S
    while "\n" not in (said := router.out.read_text("utf-8")):
        assert time.monotonic() < until, router.log.read_text("utf-8")
        time.sleep(0.01)
    return said.splitlines()[0].split()[-1]


def copy_project(root: Path, *, without: Collection[str] = ()) -> None:
    """Copy packages, tests and what these start, with bytecode: each would compile it anew."""
    for name in (*PACKAGES, "deploy", "tests"):
        if name not in without:
            shutil.copytree(ROOT / name, root / name)


def copy_command(*arguments: str) -> list[str]:
    """Return the command line of `python -m …` for a copy.

    Without `site` the project's own folder, which is installed too, cannot be imported.
    """
    return [sys.executable, "-S", "-m", *arguments]


def copy_environment(root: Path) -> dict[str, str]:
    """Return an environment in which modules come from the copy or from installed packages."""
    installed = [path for path in sys.path if path.endswith("site-packages")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *installed])}


@contextmanager
def module_forks(root: Path, files: Path) -> Iterator[ModuleForks]:
    """Start the process that runs modules of a copy; modules come from there or are installed.

    What they write is in `files`.
    """
    command = copy_command("tests.support.module_forks", "cutover.cli.operate.serve", "graph_impl")
    with subprocess.Popen(
        command,
        cwd=root,
        env=copy_environment(root),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield ModuleForks(root, files, process.stdin, process.stdout)
        process.stdin.close()
        process.wait(PATIENCE_S)
