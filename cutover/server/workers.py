"""Several workers on one address: started, watched, restarted and stopped by one process.

Workers are forked: a restarted one runs the same code as the others even if a newer version has
been installed, serves within a moment, and shares the memory of what was imported. Decision 0024
says what uvicorn's own supervisor lacks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from contract.errors import CutoverError
from cutover.server.sockets import SharedListener

TICK_SECONDS = 0.25
STABLE_SECONDS = 60.0
"""A worker that ran as long has not died of its start."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_FAILED = 1
_STOPPING = (signal.SIGTERM, signal.SIGINT)
_HANDLED = (*_STOPPING, signal.SIGCHLD)

log = logging.getLogger(__name__)


def deaths_in_a_row(before: int, lived: float) -> int:
    """Return the deaths in a row after a further one, of a worker that lived so many seconds."""
    return 1 if lived >= STABLE_SECONDS else before + 1


def restart_pause(deaths: int) -> float:
    """Return the seconds to wait after so many deaths in a row: 0, 0.5, 1, 2 … 30."""
    return 0.0 if deaths <= 1 else min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(deaths - 2, 16))


class WorkerChannel:
    """One end of the connection between the supervisor and a worker, open while both live.

    The worker reports once that it serves. The supervisor sends nothing: when its end closes,
    by itself or by its death, the worker stops.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    @classmethod
    def pair(cls) -> tuple[WorkerChannel, WorkerChannel]:
        """Return both ends."""
        ends = socket.socketpair()
        for end in ends:
            end.settimeout(0)
        return cls(ends[0]), cls(ends[1])

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._end.fileno()

    def report_ready(self) -> None:
        """Report to the supervisor, if it is still there, that requests are served."""
        with suppress(OSError):
            self._end.send(b"r")

    def received_ready(self) -> bool:
        """Whether the worker has reported since the last call."""
        try:
            return self._end.recv(64) != b""
        except OSError:
            return False

    def on_close(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        """Call `stop` once the other end is closed."""

        def readable() -> None:
            loop.remove_reader(self._end)
            stop()

        loop.add_reader(self._end, readable)

    def close(self) -> None:
        """Close this end; idempotent."""
        self._end.close()


Work = Callable[[Sequence[socket.socket], WorkerChannel], int]
"""What a worker does on its sockets, in its own process, until its channel closes.

It returns the exit status.
"""


@dataclass(slots=True)
class _Worker:
    listener: SharedListener
    pid: int = 0
    channel: WorkerChannel | None = None
    ready: bool = False
    started: float = 0.0
    deaths: int = 0
    restart_at: float = 0.0

    def __str__(self) -> str:
        return f"worker {self.listener.number}"

    def close_channel(self) -> None:
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    def stop(self) -> None:
        """Close the supervisor's ends: no more connections, and the worker drains."""
        self.listener.close()
        self.close_channel()


class Supervisor:
    """Keeps a worker running on every listener until a signal comes.

    `announce` is called once, when all serve; `tick` four times a second. Workers that have not
    stopped `stop_seconds` after they were told to are killed.
    """

    def __init__(
        self,
        listeners: Sequence[SharedListener],
        work: Work,
        *,
        stop_seconds: float,
        announce: Callable[[], None],
        tick: Callable[[], object],
    ) -> None:
        self._workers = [_Worker(listener) for listener in listeners]
        self._work = work
        self._stop_seconds = stop_seconds
        self._announce = announce
        self._tick = tick
        self._announced = self._first_ready = False
        self._kill_at: float | None = None
        self._status = 0

    def run(self) -> int:
        """Supervise; returns the exit status.

        0: stopped as told. 1: a worker had to be killed, or failed while it stopped. Otherwise
        the first worker never served, and its status says why.
        """
        with _signals_on_a_socket() as signals:
            while self._kill_at is None or self._running():
                if self._kill_at is None:
                    self._start_due()
                else:
                    self._kill_late()
                received = self._wait(signals)
                self._receive_ready()
                self._reap()
                for one in received:
                    if one in _STOPPING:
                        self._stop_or_hurry()
                self._tick()
        return self._status

    def _running(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.pid]

    def _wait(self, signals: socket.socket) -> bytes:
        """Wait for a signal, a worker's report or the next tick; returns the signals' numbers."""
        channels = [] if self._announced else [one.channel for one in self._running()]
        ends = [signals.fileno(), *(channel.fileno() for channel in channels if channel)]
        select.select(ends, [], [], TICK_SECONDS)
        try:
            return signals.recv(4_096)
        except BlockingIOError:
            return b""

    def _start_due(self) -> None:
        """Start the workers that are due; only the first until it serves: it creates the tables."""
        now = time.monotonic()
        for worker in self._workers if self._first_ready else self._workers[:1]:
            if not worker.pid and now >= worker.restart_at:
                try:
                    self._start(worker)
                except (CutoverError, OSError) as error:
                    log.error("%s cannot be started: %s", worker, error)
                    self._postpone(worker)

    def _start(self, worker: _Worker) -> None:
        listening = worker.listener.open()
        ours, theirs = WorkerChannel.pair()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._become(worker, listening, theirs)
        theirs.close()
        worker.pid, worker.channel, worker.ready = pid, ours, False
        worker.started = time.monotonic()

    def _become(
        self, worker: _Worker, listening: Sequence[socket.socket], channel: WorkerChannel
    ) -> None:
        """Be a worker, in the forked process; never returns."""
        status = _FAILED
        try:
            signal.set_wakeup_fd(-1)
            for one in _HANDLED:
                signal.signal(one, signal.SIG_DFL)
            for other in self._workers:
                if other is not worker:
                    other.stop()
            status = self._work(listening, channel)
        except BaseException:
            log.exception("%s failed", worker)
        finally:
            logging.shutdown()
            sys.stdout.flush()
            os._exit(status)

    def _receive_ready(self) -> None:
        for worker in self._running():
            if not worker.ready and worker.channel is not None and worker.channel.received_ready():
                worker.ready = self._first_ready = True
        if not self._announced and all(worker.ready for worker in self._workers):
            self._announced = True
            self._announce()

    def _reap(self) -> None:
        for worker in self._running():
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                worker.pid = 0
                self._ended(worker, pid, os.waitstatus_to_exitcode(status))

    def _ended(self, worker: _Worker, pid: int, status: int) -> None:
        how = (
            f"ended with status {status}"
            if status >= 0
            else f"was ended by {signal.Signals(-status).name}"
        )
        if self._kill_at is not None:
            if status != 0:
                log.error("%s (%d) %s while it stopped", worker, pid, how)
                self._status = _FAILED
        elif not self._first_ready:
            self._status = status if status > 0 else _FAILED
            self._stop()
        else:
            log.error("%s (%d) %s", worker, pid, how)
            self._postpone(worker)

    def _postpone(self, worker: _Worker) -> None:
        """Schedule the restart; during a pause the other workers take its connections."""
        now = time.monotonic()
        worker.deaths = deaths_in_a_row(worker.deaths, now - worker.started)
        pause = restart_pause(worker.deaths)
        worker.restart_at = now + pause
        worker.close_channel()
        if pause:
            worker.listener.close()
            log.warning("%s is restarted in %g s", worker, pause)

    def _stop_or_hurry(self) -> None:
        if self._kill_at is None:
            self._stop()
            return
        for worker in self._running():
            os.kill(worker.pid, signal.SIGINT)  # the second signal: open streams are not waited for

    def _stop(self) -> None:
        self._kill_at = time.monotonic() + self._stop_seconds
        for worker in self._workers:
            worker.stop()

    def _kill_late(self) -> None:
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            for worker in self._running():
                log.error("%s did not stop within %g s: killed", worker, self._stop_seconds)
                os.kill(worker.pid, signal.SIGKILL)
            self._kill_at = float("inf")


@contextmanager
def _signals_on_a_socket() -> Iterator[socket.socket]:
    """Receive signals as bytes on a socket, so that they can be waited for beside other things."""
    receiving, sending = socket.socketpair()
    with receiving, sending:
        receiving.settimeout(0)
        sending.settimeout(0)
        # Python writes a signal to the descriptor only if it has a handler.
        before = {one: signal.signal(one, lambda *_: None) for one in _HANDLED}
        signal.set_wakeup_fd(sending.fileno())
        try:
            yield receiving
        finally:
            signal.set_wakeup_fd(-1)
            for one, handler in before.items():
                signal.signal(one, handler)
