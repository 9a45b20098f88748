"""The pool: worker processes, watched; one that is blocked or dies is replaced, its run given up.

A worker says what it begins, and that its loop turns. When it says nothing for longer than an
exchange may take it is killed; its part is done again, without the run that was under way.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe, connection
from typing import TYPE_CHECKING, assert_never

from contract.errors import CutoverError
from cutover.replay.work import Job
from cutover.replay.worker import BEAT, Beat, Began, Finished, Ready, Terms

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection
    from typing import Self

    from cutover.replay.counts import Counts
    from cutover.replay.parts import Part
    from cutover.replay.replaying import Loss
    from cutover.replay.worker import Sign

_GRACE = 2 * BEAT
_LOADING = 60.0
_LETS_GO = 5.0
_FALSE_STARTS = 3
_MAIN = "import sys; from cutover.replay.worker import main; main(int(sys.argv[1]))"
"""Not a process of `multiprocessing`, which would import all of the program that starts it."""


class WorkersDie(CutoverError):
    """Workers end before they have begun anything."""

    def __init__(self, log: str) -> None:
        super().__init__(f"worker processes end before they have begun; see {log!r}")


class _Worker:
    """One process, and what is known of it."""

    def __init__(self, terms: Terms) -> None:
        ours, theirs = Pipe()
        with theirs:
            command = sys.executable, "-P", "-c", _MAIN, str(theirs.fileno())
            paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=paths)  # noqa: S603 - our own module
        self.connection: Connection[Job | Terms, Sign] = ours
        self.connection.send(terms)
        self.job: Job | None = None
        self.run: tuple[str, str] | None = None
        self.patience = _LOADING
        self.heard = time.monotonic()

    def give(self, job: Job) -> None:
        self.job, self.run = job, None
        self.heard = time.monotonic()
        self.connection.send(job)

    @property
    def silent(self) -> bool:
        return self.job is not None and time.monotonic() - self.heard > self.patience

    def end(self) -> None:
        """Let it end by itself, or make it."""
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LETS_GO if self.job is None else 0)
            return
        self._process.kill()
        self._process.wait()

    def abort(self) -> None:
        """Kill it, and let it say in the log where it stood."""
        self._process.send_signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LETS_GO)
        self.end()


class Pool:
    """So many worker processes; a context that leaves none behind."""

    def __init__(self, terms: Terms, processes: int) -> None:
        self._terms = terms
        self._processes = processes
        self._workers: list[_Worker] = []
        self._again: deque[Job] = deque()
        self._false_starts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._workers:
            self._workers.pop().end()

    def run(self, parts: Iterator[Part]) -> Iterator[tuple[Part, Counts]]:
        """Do parts, in any order; yield each with its counts; raises `WorkersDie`."""
        jobs = (Job(part, self._terms.how.at_once) for part in parts)
        while True:
            self._hand_out(jobs)
            busy = {worker.connection: worker for worker in self._workers if worker.job}
            if not busy:
                return
            for ready in connection.wait(list(busy), timeout=BEAT):
                yield from self._hear(busy[ready])  # type: ignore[index]  # they are ours
            for worker in [worker for worker in self._workers if worker.silent]:
                self._lose(worker, "blocked")

    def _hand_out(self, jobs: Iterator[Job]) -> None:
        idle = [worker for worker in self._workers if worker.job is None]
        while idle or len(self._workers) < self._processes:
            job = self._again.popleft() if self._again else next(jobs, None)
            if job is None:
                return
            if not idle:
                idle.append(_Worker(self._terms))
                self._workers.append(idle[-1])
            idle.pop().give(job)

    def _hear(self, worker: _Worker) -> Iterator[tuple[Part, Counts]]:
        try:
            sign = worker.connection.recv()
        except (EOFError, OSError):
            self._lose(worker, "died")
            return
        worker.heard = time.monotonic()
        match sign:
            case Ready():
                worker.patience = self._terms.how.seconds + _GRACE
            case Beat():
                pass
            case Began(exchange, stack):
                worker.run = exchange, stack
            case Finished(counts, spent):
                yield from self._finished(worker, counts, spent=spent)
            case _:
                assert_never(sign)

    def _finished(
        self, worker: _Worker, counts: Counts, *, spent: bool
    ) -> Iterator[tuple[Part, Counts]]:
        job, worker.job = worker.job, None
        if spent:
            self._workers.remove(worker)
            worker.end()
        if job is not None:
            yield job.part, counts

    def _lose(self, worker: _Worker, loss: Loss) -> None:
        """Replace a worker; its part is done again, one by one, until the culprit is known."""
        self._workers.remove(worker)
        worker.abort()
        job, run = worker.job, worker.run
        if job is None:
            return
        if run is None:
            self._false_starts += 1
            if self._false_starts > _FALSE_STARTS:
                raise WorkersDie(str(self._terms.log))
        elif job.at_once == 1:
            job.lost[run] = loss
        self._again.append(replace(job, at_once=1))
