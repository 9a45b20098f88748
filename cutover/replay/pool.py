"""Parts replayed in processes: one that blocks or dies is replaced, and its run given up.

Every worker is an executor with one process, so that a stack that ends its process takes no other
part along. The process reports over a pipe which run begins, and that its loop runs. One that
reports nothing for longer than an exchange may take is killed; its part is replayed again without
the run that was in progress.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import resource
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe, get_context, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Self

from contract.errors import CutoverError
from contract.flows import SPECS
from cutover.replay.journal import SegmentWriter
from cutover.replay.parts import Part
from cutover.replay.play import PlayOptions
from cutover.replay.replayer import Loss, PartJob, PartResult, Replayer, replay_part
from cutover.replay.sides import Sides

LOG = "replay.log"
FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
BEAT = 1.0
_GRACE = 2 * BEAT
_POLL = 0.2
_LOADING = 60.0
_LAST_WORDS = 5.0
"""Seconds in which a killed process writes to the log where it stood."""
_FALSE_STARTS = 3
_ORPHAN = 60.0
"""Seconds beyond its limit after which a blocked process without a parent ends itself."""


class WorkersDie(CutoverError):
    """Worker processes end before they have begun a run."""

    def __init__(self, log: str) -> None:
        super().__init__(f"worker processes end before they have begun; see {log!r}")


@dataclass(frozen=True, slots=True)
class Terms:
    """What a worker must know before its first part."""

    sides: Sides
    options: PlayOptions
    out: Path

    @property
    def log(self) -> Path:
        """What stacks log, and where killed processes stood."""
        return self.out / LOG


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """A worker's stacks are loaded and its loop runs; `run` names a run that begins.

    By its exchange and its stack.
    """

    pid: int
    run: tuple[str, str] | None = None


ReplayParts = Callable[[Iterator[Part]], Iterator[tuple[Part, PartResult]]]
"""Replays parts; yields each with its result."""

NewExecutor = Callable[[Terms, "Connection[WorkerReport, WorkerReport]"], Executor]
"""Makes an executor with one process, in which `start` is called with these arguments."""


def process_executor(terms: Terms, reports: Connection[WorkerReport, WorkerReport]) -> Executor:
    """Return an executor with one process of this machine."""
    context = get_context("forkserver")  # a lost worker is replaced: soon
    context.set_forkserver_preload([__name__])
    return ProcessPoolExecutor(1, context, start, (terms, reports))


def replay_here(terms: Terms, parts: Iterator[Part]) -> Iterator[tuple[Part, PartResult]]:
    """Replay parts in this process, for a debugger; a stack that blocks or exits takes it along."""
    replayer = Replayer(terms.sides, terms.options, SPECS)
    segments = SegmentWriter(terms.out)
    for part in parts:
        job = PartJob(part, terms.options.at_once)
        with asyncio.Runner() as runner:
            result = runner.run(replay_part(job, replayer, lambda *_: None))
        segments.write(part, result.lines)
        yield part, result


class WorkerPool:
    """So many workers; a context that leaves no process behind."""

    def __init__(
        self, terms: Terms, processes: int, new_executor: NewExecutor = process_executor
    ) -> None:
        self._terms = terms
        self._processes = processes
        self._new_executor = new_executor
        self._workers: list[_Worker] = []
        self._again: deque[PartJob] = deque()
        self._false_starts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._workers:
            self._workers.pop().kill()

    def replay(self, parts: Iterator[Part]) -> Iterator[tuple[Part, PartResult]]:
        """Replay parts in any order; yields each with its result; raises `WorkersDie`."""
        jobs = (PartJob(part, self._terms.options.at_once) for part in parts)
        while True:
            self._submit(jobs)
            busy = [worker for worker in self._workers if worker.future is not None]
            if not busy:
                return
            wait([worker.future for worker in busy if worker.future], _POLL, "FIRST_COMPLETED")
            for worker in busy:
                worker.receive(self._terms.options.seconds + _GRACE)
                if worker.future is not None and worker.future.done():
                    yield from self._finished(worker, worker.future)
                elif worker.silent:
                    worker.abort()
                    self._lost(worker, "blocked")

    def _submit(self, jobs: Iterator[PartJob]) -> None:
        idle = [worker for worker in self._workers if worker.future is None]
        while idle or len(self._workers) < self._processes:
            job = self._again.popleft() if self._again else next(jobs, None)
            if job is None:
                return
            if not idle:
                idle.append(_Worker(self._terms, self._new_executor))
                self._workers.append(idle[-1])
            idle.pop().submit(job)

    def _finished(
        self, worker: _Worker, future: Future[PartResult]
    ) -> Iterator[tuple[Part, PartResult]]:
        try:
            result = future.result()
        except BrokenExecutor:
            self._lost(worker, "died")
            return
        job, worker.future = worker.job, None
        if result.lingers:
            self._workers.remove(worker)
            worker.kill()
        if job is not None:
            yield job.part, result

    def _lost(self, worker: _Worker, loss: Loss) -> None:
        """Replace a worker; its part is replayed one by one until the culprit is known."""
        self._workers.remove(worker)
        worker.kill()
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


class _Worker:
    """An executor with one process, and what that has reported."""

    def __init__(self, terms: Terms, new_executor: NewExecutor) -> None:
        self._reports, self._theirs = Pipe(duplex=False)
        self._executor = new_executor(terms, self._theirs)
        self._pid = 0
        self._patience = _LOADING
        self._heard = time.monotonic()
        self.job: PartJob | None = None
        self.future: Future[PartResult] | None = None
        self.run: tuple[str, str] | None = None

    def submit(self, job: PartJob) -> None:
        self.job, self.run = job, None
        self._heard = time.monotonic()
        self.future = self._executor.submit(replay_submitted, job)
        self._theirs.close()  # the process has its own copy since it was started

    def receive(self, patience: float) -> None:
        """Take the reports there are; `patience` is in seconds, once the stacks are loaded."""
        with suppress(EOFError, OSError):
            while self._reports.poll():
                report: WorkerReport = self._reports.recv()
                self._heard = time.monotonic()
                self._pid, self._patience = report.pid, patience
                self.run = report.run or self.run

    @property
    def silent(self) -> bool:
        return self.future is not None and time.monotonic() - self._heard > self._patience

    def abort(self) -> None:
        """End the process so that it writes to the log where it stood."""
        if self._pid and self.future is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGABRT)
            wait([self.future], _LAST_WORDS)

    def kill(self) -> None:
        """End the process whatever it does: what it has finished is written."""
        self.receive(0.0)
        self._reports.close()
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._executor.shutdown(cancel_futures=True)


class _Process:
    """The state of a worker's process."""

    def __init__(
        self, terms: Terms, reports: Connection[WorkerReport, WorkerReport], log: IO[str]
    ) -> None:
        self._reports = reports
        self._patience = terms.options.seconds + _ORPHAN
        self._log = log
        self._segments = SegmentWriter(terms.out)
        self._replayer = Replayer(terms.sides, terms.options, SPECS)
        # Never closed: that would wait for a task that ignores its cancellation.
        self._loop = asyncio.new_event_loop()
        reports.send(WorkerReport(os.getpid()))

    def replay(self, job: PartJob) -> PartResult:
        result = self._loop.run_until_complete(self._replay(job))
        self._segments.write(job.part, result.lines)
        return replace(result, lines=[])

    async def _replay(self, job: PartJob) -> PartResult:
        beating = asyncio.create_task(self._beat(), name="beat")
        try:
            return await replay_part(
                job, self._replayer, lambda *run: self._reports.send(WorkerReport(os.getpid(), run))
            )
        finally:
            beating.cancel()
            faulthandler.cancel_dump_traceback_later()

    async def _beat(self) -> None:
        while True:
            faulthandler.dump_traceback_later(self._patience, exit=True, file=self._log)
            await asyncio.sleep(BEAT)
            self._reports.send(WorkerReport(os.getpid()))


_process: list[_Process] = []


def start(terms: Terms, reports: Connection[WorkerReport, WorkerReport]) -> None:
    """Prepare a worker's process: called in it before its first part."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and decides
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    log = terms.log.open("a", encoding="utf-8")  # open as long as the process
    faulthandler.enable(log)
    logging.basicConfig(level=logging.WARNING, stream=log, format=FORMAT)
    threading.Thread(target=_exit_with_parent, name="parent", daemon=True).start()
    _process.append(_Process(terms, reports, log))


def replay_submitted(job: PartJob) -> PartResult:
    """Replay a part in a worker's process and write its segment; the result has no lines."""
    return _process[0].replay(job)


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
