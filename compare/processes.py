"""Processes: the parts of a comparison shared among several, and what they found put together."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from contract.errors import CutoverError

if TYPE_CHECKING:
    from compare.captures import Question
    from compare.input.segments import Segment
    from compare.tally import Tally

Compare = Callable[["Segment", "Question"], "Tally"]

WORTH_SHARING = 1 << 23
"""Bytes as stored below which starting processes takes longer than the work."""
_AHEAD = 2
_PATIENCE_S = 5.0


class WorkerLost(CutoverError):
    """A process that compared captures has ended without an answer."""

    def __init__(self, part: str, status: int | None) -> None:
        super().__init__(
            f"the process that compared {part!r} ended with status {status}, for want of memory "
            "perhaps: fewer processes need less"
        )


class WorkRefused(CutoverError):
    """A process that compared captures said why it cannot."""


def processes_for(segments: Iterable[Segment]) -> int:
    """Say how many processes are worth starting: one for each core, one alone when it is little."""
    size = sum(segment.size for segment in segments)
    return 1 if size < WORTH_SHARING else len(os.sched_getaffinity(0))


def can_share(question: Question) -> bool:
    """Whether a question can be put to another process."""
    try:
        pickle.dumps(question)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


def share(
    compare: Compare, parts: Sequence[Segment], question: Question, processes: int
) -> Iterator[tuple[Segment, Tally]]:
    """Compare parts in other processes; yields what they found in the order of the parts.

    Only so many parts are under way that what waits for an earlier one stays bounded. Raises
    `WorkerLost`, and `WorkRefused` where a comparison cannot be done at all.
    """
    workers: list[_Worker] = []
    try:
        workers += (_Worker.started(compare, question) for _ in range(processes))
        yield from _Sharing(workers, parts).results()
    finally:
        for worker in workers:
            worker.end()


@dataclass(slots=True)
class _Worker:
    """A process at work, and the connection to it."""

    process: subprocess.Popen[bytes]
    connection: Connection[Any, Any]

    @staticmethod
    def started(compare: Compare, question: Question) -> _Worker:
        ours, theirs = Pipe()
        with theirs:
            command = sys.executable, "-m", "compare.worker", str(theirs.fileno())
            paths = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=paths)  # noqa: S603 (our own module)
        ours.send((compare, question))
        return _Worker(process, ours)

    def end(self) -> None:
        """End the process; one that has no more to do ends when its connection does."""
        self.connection.close()
        self.process.terminate()
        try:
            self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class _Sharing:
    """Parts handed to workers, one at a time each, and what has come back too early."""

    def __init__(self, workers: Sequence[_Worker], parts: Sequence[Segment]) -> None:
        self._parts = parts
        self._idle = list(workers)
        self._most = _AHEAD * len(workers)
        self._left = deque(range(len(parts)))
        self._busy: dict[Any, tuple[_Worker, int]] = {}
        self._early: dict[int, Tally] = {}

    def results(self) -> Iterator[tuple[Segment, Tally]]:
        for number, part in enumerate(self._parts):
            while number not in self._early:
                self._hand_out(number)
                self._gather()
            yield part, self._early.pop(number)

    def _hand_out(self, due: int) -> None:
        while self._idle and self._left and self._left[0] < due + self._most:
            worker, number = self._idle.pop(), self._left.popleft()
            self._busy[worker.connection] = worker, number
            self._ask(worker, number)

    def _ask(self, worker: _Worker, number: int) -> None:
        try:
            worker.connection.send(self._parts[number])
        except OSError as trouble:
            raise self._lost(worker, number) from trouble

    def _gather(self) -> None:
        for connection in wait(list(self._busy)):
            worker, number = self._busy.pop(connection)
            try:
                answer = worker.connection.recv()
            except (EOFError, OSError) as trouble:
                raise self._lost(worker, number) from trouble
            if isinstance(answer, str):
                raise WorkRefused(answer)
            self._early[number] = answer
            self._idle.append(worker)

    def _lost(self, worker: _Worker, number: int) -> WorkerLost:
        worker.end()
        return WorkerLost(self._parts[number].url, worker.process.returncode)
