"""Pieces of work on any executor: who does one, and when, cannot be seen in what comes of them."""

from __future__ import annotations

import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from typing import TypeVar

from compare.input.segments import CaptureSegment
from contract.errors import CutoverError

WORTH_SHARING = 1 << 23
"""Bytes as stored below which starting processes takes longer than the work."""
AHEAD = 2
"""Pieces under way for each worker: what waits for an earlier one stays bounded."""

Piece = TypeVar("Piece")
Result = TypeVar("Result")


class WorkerLost(CutoverError):
    """A process that worked on a piece has ended without an answer."""

    def __init__(self, piece: object) -> None:
        named = piece.url if isinstance(piece, CaptureSegment) else str(piece)
        super().__init__(
            f"the process that worked on {named!r} has ended, for want of memory perhaps: fewer "
            "processes need less"
        )


@dataclass(frozen=True, slots=True)
class Workers:
    """What runs calls elsewhere; None: here, on processes as the caller chooses.

    `count` is how many calls it runs at once.
    """

    executor: Executor | None = None
    count: int | None = None


HERE = Workers()
"""Processes of this machine, as many as are worth it."""
ALONE = Workers(count=1)
"""This process."""


def processes_for(segments: Iterable[CaptureSegment]) -> int:
    """Return how many processes are worth starting: one a core, or one where there is little."""
    size = sum(segment.size for segment in segments)
    return 1 if size < WORTH_SHARING else cores()


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def process_pool(processes: int, modules: Sequence[str] = (__name__,)) -> ProcessPoolExecutor:
    """Make a pool whose processes leave interrupts to this one.

    `modules` are imported once for all of them.
    """
    context = get_context("forkserver")  # this process may have threads
    context.set_forkserver_preload([*modules])
    return ProcessPoolExecutor(processes, context, signal.signal, (signal.SIGINT, signal.SIG_IGN))


def can_send(work: object) -> bool:
    """Whether work can be sent to another process."""
    try:
        pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


@contextmanager
def at_work(workers: Workers, *modules: str) -> Iterator[Workers]:
    """Yield workers that are there: processes are started where there is no executor.

    `modules` are what their work needs; a count of 1 starts none.
    """
    count = cores() if workers.count is None else workers.count
    if workers.executor is not None or count <= 1:
        yield Workers(workers.executor, count)
        return
    with process_pool(count, modules) as pool:
        yield Workers(pool, count)


def in_order(
    work: Callable[[Piece], Result], pieces: Iterable[Piece], workers: Workers
) -> Generator[tuple[Piece, Result]]:
    """Do pieces of work, `AHEAD` for each of the workers at once; yields results in their order.

    In this process where there is no executor. Raises what the work does, and `WorkerLost`.
    """
    executor = workers.executor
    if executor is None:
        for piece in pieces:
            yield piece, work(piece)
        return
    left, most = iter(pieces), AHEAD * max(1, workers.count or 1)
    under_way: deque[tuple[Piece, Future[Result]]] = deque()
    due: object = None
    try:
        while True:
            for piece in islice(left, most - len(under_way)):
                due = piece
                under_way.append((piece, executor.submit(work, piece)))
            if not under_way:
                return
            piece, future = under_way.popleft()
            due = piece
            yield piece, future.result()
    except BrokenExecutor as broken:
        raise WorkerLost(due) from broken
    finally:
        for _, future in under_way:
            future.cancel()
