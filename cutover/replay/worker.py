"""The worker: a process of its own that replays parts, and can be lost without harm."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import resource
import signal
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from cutover.flows import SPECS
from cutover.replay.outputs import Outputs
from cutover.replay.replaying import Replayer
from cutover.replay.work import Job, Result, work

if TYPE_CHECKING:
    from cutover.replay.counts import Counts
    from cutover.replay.playing import How
    from cutover.replay.sides import Sides

BEAT = 1.0
_ORPHAN = 60.0
"""Seconds beyond the limit after which a blocked worker whose parent is gone ends itself."""
LOG = "replay.log"
FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a worker must know before its first part."""

    sides: Sides
    how: How
    out: Path

    @property
    def log(self) -> Path:
        """Where stacks complain, and where the last words of a process that was killed are."""
        return self.out / LOG


@dataclass(frozen=True, slots=True)
class Ready:
    """The stacks are loaded."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The loop turns."""


@dataclass(frozen=True, slots=True)
class Began:
    """A run begins."""

    exchange: str
    stack: str


@dataclass(frozen=True, slots=True)
class Finished:
    """A part is done and in its place; `spent`: the worker must be replaced."""

    counts: Counts
    spent: bool


Sign = Ready | Beat | Began | Finished
"""What a worker says; every word is a sign of life."""


def main(descriptor: int) -> None:
    """Replay what comes through the connection, first the terms, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and says what now
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection: Connection[Sign, Any] = Connection(descriptor)
    with suppress(EOFError, BrokenPipeError):
        terms: Terms = connection.recv()
        with terms.log.open("a", encoding="utf-8") as log:
            _log_to(log)
            _serve(connection, terms, log)


def _serve(connection: Connection[Sign, Job], terms: Terms, log: IO[str]) -> None:
    try:
        _Worker(connection, terms, log).serve()
    finally:
        logging.shutdown()


class _Worker:
    def __init__(self, connection: Connection[Sign, Job], terms: Terms, log: IO[str]) -> None:
        self._connection = connection
        self._patience = terms.how.seconds + _ORPHAN
        self._log = log
        self._outputs = Outputs(terms.out)
        self._replayer = Replayer(terms.sides, terms.how, SPECS)

    def serve(self) -> None:
        self._connection.send(Ready())
        with asyncio.Runner() as runner:
            while True:
                job = self._connection.recv()
                result = runner.run(self._work(job))
                self._outputs.write(job.part, result.lines)
                self._connection.send(Finished(result.counts, spent=result.lingers))
                if result.lingers:
                    self._log.flush()
                    os._exit(0)  # the loop would wait for what does not let go

    async def _work(self, job: Job) -> Result:
        beating = asyncio.create_task(self._beat(), name="beat")
        try:
            return await work(job, self._replayer, self._began)
        finally:
            beating.cancel()
            faulthandler.cancel_dump_traceback_later()

    async def _beat(self) -> None:
        while True:
            faulthandler.dump_traceback_later(self._patience, exit=True, file=self._log)
            await asyncio.sleep(BEAT)
            self._connection.send(Beat())

    def _began(self, exchange: str, stack: str) -> None:
        self._connection.send(Began(exchange, stack))


def _log_to(log: IO[str]) -> None:
    """Log what stacks complain of, and where they stood when they were killed."""
    faulthandler.enable(log)
    logging.basicConfig(level=logging.WARNING, stream=log, format=FORMAT)
