"""The supervisor: forks the workers, starts again who died, and ends with a status that says how.

Forked, not started anew: a worker that is started again runs the same code as the others, whatever
has been installed meanwhile, stands within a moment, and shares the memory of what was imported.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from contract.errors import CutoverError
from cutover.server.workers.line import Line
from cutover.server.workers.patience import deaths_in_a_row, pause
from cutover.server.workers.signals import STOPPING, forget, hearing

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from cutover.server.workers.places import Place

    Work = Callable[[socket.socket, Line], int]

TICK_SECONDS = 0.25
_FAILED = 1

log = logging.getLogger(__name__)


class _Worker:
    """One worker: its place, its process while there is one, and how often that has died."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.pid = 0
        self.line: Line | None = None
        self.ready = False
        self.began = 0.0
        self.deaths = 0
        self.due = 0.0

    def __str__(self) -> str:
        return f"worker {self.place.number}"

    def leave(self) -> None:
        """Close the supervisor's ends: no more connections, and the worker is to stop."""
        self.place.close()
        if self.line is not None:
            self.line.close()
            self.line = None


class Supervisor:
    """Keeps a worker in every place until a signal comes.

    `work` is what a worker does, in its own process, until its line is closed; it returns the
    status of that process. `announce` is called once, when all serve; `tick` four times a second.
    Workers that were asked to stop and have not after `stop_seconds` are killed.
    """

    def __init__(
        self,
        places: Sequence[Place],
        work: Work,
        *,
        stop_seconds: float,
        announce: Callable[[], None],
        tick: Callable[[], object],
    ) -> None:
        self._workers = [_Worker(place) for place in places]
        self._work = work
        self._stop_seconds = stop_seconds
        self._announce = announce
        self._tick = tick
        self._announced = self._stood = False
        self._stop_by: float | None = None
        self._status = 0

    def run(self) -> int:
        """Supervise; returns the status to exit with.

        0: stopped as asked. 1: a worker had to be killed, or failed while it stopped. Otherwise
        the first worker never stood, and its status says why.
        """
        with hearing() as signals:
            while self._stop_by is None or self._alive():
                self._start_due()
                lines = [worker.line for worker in self._alive() if worker.line]
                heard = signals.wait([] if self._announced else lines, TICK_SECONDS)
                self._listen()
                self._reap()
                for one in heard:
                    if one in STOPPING:
                        self._asked_to_stop()
                self._tick()
        return self._status

    def _alive(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.pid]

    def _start_due(self) -> None:
        """Start whoever is due; the first alone, until it stands: it makes what all share."""
        if self._stop_by is not None:
            self._kill_late()
            return
        now = time.monotonic()
        for worker in self._workers if self._stood else self._workers[:1]:
            if not worker.pid and now >= worker.due:
                try:
                    self._start(worker)
                except (CutoverError, OSError) as error:
                    log.error("%s cannot be started: %s", worker, error)  # noqa: TRY400 - one line says it
                    self._put_off(worker)

    def _start(self, worker: _Worker) -> None:
        listening = worker.place.open()
        ours, theirs = Line.pair()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._become(worker, listening, theirs)
        theirs.close()
        worker.pid, worker.line, worker.ready, worker.began = pid, ours, False, time.monotonic()

    def _become(self, worker: _Worker, listening: socket.socket, line: Line) -> None:
        """Be a worker, in the forked process; never returns."""
        status = _FAILED
        try:
            forget()
            for other in self._workers:
                if other is not worker:
                    other.leave()
            status = self._work(listening, line)
        except BaseException:
            log.exception("%s failed", worker)
        finally:
            logging.shutdown()
            sys.stdout.flush()
            os._exit(status)

    def _listen(self) -> None:
        for worker in self._alive():
            if not worker.ready and worker.line is not None and worker.line.heard_ready():
                worker.ready = self._stood = True
        if not self._announced and all(worker.ready for worker in self._workers):
            self._announced = True
            self._announce()

    def _reap(self) -> None:
        for worker in self._alive():
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                self._ended(worker, os.waitstatus_to_exitcode(status))

    def _ended(self, worker: _Worker, status: int) -> None:
        pid, worker.pid = worker.pid, 0
        if self._stop_by is not None:
            if status != 0:
                log.error("%s (%d) %s while it stopped", worker, pid, _said(status))
                self._status = _FAILED
        elif not self._stood:
            self._status = status if status > 0 else _FAILED
            self._stop()
        else:
            log.error("%s (%d) %s", worker, pid, _said(status))
            self._put_off(worker)

    def _put_off(self, worker: _Worker) -> None:
        """Say when a worker is started again; meanwhile the others take its connections."""
        now = time.monotonic()
        worker.deaths = deaths_in_a_row(worker.deaths, now - worker.began)
        seconds = pause(worker.deaths)
        worker.due = now + seconds
        if worker.line is not None:
            worker.line.close()
            worker.line = None
        if seconds:
            worker.place.close()
            log.warning("%s is started again in %g s", worker, seconds)

    def _asked_to_stop(self) -> None:
        if self._stop_by is None:
            self._stop()
            return
        for worker in self._alive():
            os.kill(worker.pid, signal.SIGINT)  # the second one: what is open is not waited for

    def _stop(self) -> None:
        self._stop_by = time.monotonic() + self._stop_seconds
        for worker in self._workers:
            worker.leave()

    def _kill_late(self) -> None:
        if self._stop_by is not None and time.monotonic() >= self._stop_by:
            for worker in self._alive():
                log.error("%s did not stop within %g s: killed", worker, self._stop_seconds)
                os.kill(worker.pid, signal.SIGKILL)
            self._stop_by = float("inf")


def _said(status: int) -> str:
    """Tell how a process ended."""
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}"
