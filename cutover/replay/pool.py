"""Parts replayed in processes: one that blocks or dies is replaced, and its run given up.

Every worker is an executor with one process, so that a stack that ends its process takes no other
part along. The process reports over a pipe which run begins, and that its loop runs. One that
reports nothing for longer than an exchange may take is killed; its part is replayed again without
the run that was in progress. A thread watches each: of this process, or of a worker of a cluster.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import pickle
import resource
import signal
import threading
import time
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe, current_process, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from pathlib import Path
from platform import node
from tempfile import TemporaryDirectory
from typing import IO, Self

from contract.errors import CutoverError
from contract.flows import SPECS
from cutover.replay.parts import Part
from cutover.replay.play import PlayOptions
from cutover.replay.replayer import Loss, PartJob, PartResult, Replayer, replay_part
from cutover.replay.sides import Sides
from effects.places import Place

LOG = "replay.log"
FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
BEAT = 1.0
_GRACE = 2 * BEAT
_POLL = 0.2
_LOADING = 60.0
_LAST_WORDS = 5.0
"""Seconds in which a killed process writes to the log where it stood."""
_FALSE_STARTS = 3
_LAST_LETTERS = 500
_LOG_AT_MOST = 1 << 18
"""Bytes of a log that come with a result."""
IDLE = 60.0
"""Seconds after which a worker that has nothing to do is ended."""
_ORPHAN = 60.0
"""Seconds beyond its limit after which a blocked process without a parent ends itself."""


class WorkersDie(CutoverError):
    """Worker processes end before they have begun a run."""

    def __init__(self, log: Path | None, said: str) -> None:
        seen = f"see {str(log)!r}" if log else f"on {node()!r} they said {said[-_LAST_LETTERS:]!r}"
        super().__init__(f"worker processes end before they have begun; {seen}")


class BlobsAway(CutoverError):
    """A worker on another machine does not see the captures, beside which long texts are."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"a long text is stored beside {place!r}, and {node()!r} does not see that: name the "
            "captures by a folder or URL that all workers see"
        )


@dataclass(frozen=True, slots=True)
class Terms:
    """What a worker must know before its first part.

    `log` is where stacks log and killed processes say where they stood; None: what is logged comes
    with the results.
    """

    sides: Sides
    options: PlayOptions
    log: Path | None = None


@dataclass(frozen=True, slots=True)
class _Report:
    """A worker's stacks are loaded and its loop runs; `run` names a run that begins.

    By its exchange and its stack.
    """

    pid: int
    run: tuple[str, str] | None = None


class WorkerPool:
    """Workers, as many as there are parts under way; a context that leaves no process behind.

    Any thread may replay a part. A worker without one for `IDLE` seconds is ended.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._lock = threading.Lock()
        self._workers: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers, whatever they do; a part under way ends with `CancelledError`."""
        with self._lock:
            self._closed = True
            workers, self._workers, self._idle = self._workers, set(), []
        for worker in workers:
            worker.kill()

    def replay(self, part: Part) -> PartResult:
        """Replay a part, whatever stacks do to its process; raises `WorkersDie`."""
        job, said, false_starts = PartJob(part, self._terms.options.at_once), "", 0
        while True:
            worker = self._take()
            try:
                done = worker.replay(job)
            except BaseException:
                self._end(worker)
                raise
            if isinstance(done, PartResult):
                said += self._end(worker) if done.lingers else self._give_back(worker)
                return replace(done, log=said)
            said += self._end(worker)
            if worker.run is None:
                false_starts += 1
                if false_starts > _FALSE_STARTS:
                    raise WorkersDie(self._terms.log, said)
            elif job.at_once == 1:
                job.lost[worker.run] = done
            job = replace(job, at_once=1)  # one by one until the culprit is known

    def _take(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise CancelledError
            if not self._idle:
                self._workers.add(worker := _Worker(self._terms))
                return worker
            worker = self._idle.pop()
        worker.timer.cancel()
        return worker

    def _give_back(self, worker: _Worker) -> str:
        """Keep a worker for the next part; returns what it has logged."""
        said = worker.said()
        worker.timer = threading.Timer(IDLE, self._expire, (worker,))
        worker.timer.daemon = True
        with self._lock:
            if not self._closed:
                self._idle.append(worker)
                worker.timer.start()
        return said

    def _expire(self, worker: _Worker) -> None:
        with self._lock:
            if worker not in self._idle:
                return
            self._idle.remove(worker)
        self._end(worker)

    def _end(self, worker: _Worker) -> str:
        """End a worker; returns what it has logged."""
        with self._lock:
            self._workers.discard(worker)
        return worker.kill()


_pools: dict[bytes, WorkerPool] = {}
_pools_lock = threading.Lock()


def replay_there(packed: bytes, part: Part) -> PartResult:
    """Replay a part on the machine of whoever calls this; `packed` are pickled terms.

    Its workers stay for the next part. Raises `WorkersDie` and `BlobsAway`.
    """
    with _pools_lock:
        if packed not in _pools:
            # A worker of a cluster is a daemon, which may have no processes of its own.
            current_process().daemon = False
            _pools[packed] = WorkerPool(pickle.loads(packed))  # noqa: S301 (from our own caller)
            Finalize(None, _pools[packed].close, exitpriority=1)  # before children are waited for
        pool = _pools[packed]
    result = pool.replay(part)
    if result.counts.damaged.get("missing") and not _is_there(part.place):
        raise BlobsAway(part.place)
    return result


def _is_there(place: str) -> bool:
    try:
        at = Place(place)
        return at.exists(at.root)
    except (OSError, ValueError, ImportError):
        return False


class _Worker:
    """An executor with one process, and what that has reported."""

    def __init__(self, terms: Terms) -> None:
        self._patience_then = terms.options.seconds + _GRACE
        self._folder = None if terms.log else TemporaryDirectory(prefix="cutover-replay-")
        self._log = terms.log or Path(self._folder.name if self._folder else "", LOG)
        self._read = 0
        self._reports, self._theirs = Pipe(duplex=False)
        context = get_context("forkserver")  # a lost worker is replaced: soon
        context.set_forkserver_preload([__name__])
        arguments = terms, self._theirs, self._log
        self._executor = ProcessPoolExecutor(1, context, _start, arguments)
        self._pid = 0
        self._patience = _LOADING
        self._heard = time.monotonic()
        self.timer = threading.Timer(IDLE, lambda: None)
        self.run: tuple[str, str] | None = None

    def replay(self, job: PartJob) -> PartResult | Loss:
        """Replay a part; returns how its process was lost, with `run`, where it was."""
        self.run, self._heard = None, time.monotonic()
        try:
            future = self._executor.submit(_replay_submitted, job)
            self._theirs.close()  # the process has its own copy since it was started
            while not wait([future], _POLL).done:
                self._receive()
                if time.monotonic() - self._heard > self._patience:
                    self._abort(future)
                    return "blocked"
            self._receive()
            return future.result()
        except BrokenExecutor:
            self._receive()
            return "died"

    def _receive(self) -> None:
        """Take the reports there are."""
        with suppress(EOFError, OSError):
            while self._reports.poll():
                report: _Report = self._reports.recv()
                self._heard = time.monotonic()
                self._pid, self._patience = report.pid, self._patience_then
                self.run = report.run or self.run

    def _abort(self, future: Future[PartResult]) -> None:
        """End the process so that it writes to the log where it stood."""
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGABRT)
            wait([future], _LAST_WORDS)

    def said(self) -> str:
        """Return what was logged since the last call, the end of it; "" where the log is shared."""
        if self._folder is None or not self._log.exists():
            return ""
        with self._log.open("rb") as log:
            log.seek(max(self._read, log.seek(0, os.SEEK_END) - _LOG_AT_MOST))
            said = log.read()
            self._read = log.tell()
        return said.decode("utf-8", "replace")

    def kill(self) -> str:
        """End the process whatever it does; returns the rest of what it has logged."""
        self.timer.cancel()
        self._receive()
        self._reports.close()
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._executor.shutdown(cancel_futures=True)
        said = self.said()
        if self._folder is not None:
            self._folder.cleanup()
        return said


class _Process:
    """The state of a worker's process."""

    def __init__(self, terms: Terms, reports: Connection[_Report, _Report], log: IO[str]) -> None:
        self._reports = reports
        self._patience = terms.options.seconds + _ORPHAN
        self._log = log
        self._replayer = Replayer(terms.sides, terms.options, SPECS)
        # Never closed: that would wait for a task that ignores its cancellation.
        self._loop = asyncio.new_event_loop()
        reports.send(_Report(os.getpid()))

    def replay(self, job: PartJob) -> PartResult:
        return self._loop.run_until_complete(self._replay(job))

    async def _replay(self, job: PartJob) -> PartResult:
        beating = asyncio.create_task(self._beat(), name="beat")
        try:
            return await replay_part(
                job, self._replayer, lambda *run: self._reports.send(_Report(os.getpid(), run))
            )
        finally:
            beating.cancel()
            faulthandler.cancel_dump_traceback_later()

    async def _beat(self) -> None:
        while True:
            faulthandler.dump_traceback_later(self._patience, exit=True, file=self._log)
            await asyncio.sleep(BEAT)
            self._reports.send(_Report(os.getpid()))


_process: list[_Process] = []


def _start(terms: Terms, reports: Connection[_Report, _Report], path: Path) -> None:
    """Prepare a worker's process: called in it before its first part."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and decides
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    log = path.open("a", encoding="utf-8")  # open as long as the process
    faulthandler.enable(log)
    logging.basicConfig(level=logging.WARNING, stream=log, format=FORMAT)
    threading.Thread(target=_exit_with_parent, name="parent", daemon=True).start()
    _process.append(_Process(terms, reports, log))


def _replay_submitted(job: PartJob) -> PartResult:
    return _process[0].replay(job)


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
