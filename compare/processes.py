"""Processes: the pieces of a comparison shared among several, and what they found put together."""

from __future__ import annotations

import os
import pickle
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context
from typing import TYPE_CHECKING

from contract.errors import CutoverError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from compare.captures import Question
    from compare.segments import Segment
    from compare.tally import Tally

WORTH_SHARING = 1 << 23
"""Bytes as stored below which starting processes takes longer than the work."""
_AHEAD = 2


class WorkerLost(CutoverError):
    """A process that compared captures has ended without an answer."""

    def __init__(self, processes: int) -> None:
        super().__init__(
            f"one of {processes} processes that compare was ended from outside, for want of memory "
            "perhaps; fewer processes need less"
        )


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
    compare: Callable[[Segment, Question], Tally],
    parts: Iterable[Segment],
    question: Question,
    processes: int,
) -> Iterator[tuple[Segment, Tally]]:
    """Compare parts in other processes; yields what they found in the order of the parts.

    Only so many parts are under way that what waits for an earlier one stays bounded. Raises
    `WorkerLost`.
    """
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (compare, question))
    left = iter(parts)
    under_way: deque[tuple[Segment, Future[Tally]]] = deque()
    try:
        while True:
            for part in islice(left, processes * _AHEAD - len(under_way)):
                under_way.append((part, pool.submit(_compare, part)))
            if not under_way:
                return
            part, future = under_way.popleft()
            yield part, future.result()
    except BrokenProcessPool as trouble:
        raise WorkerLost(processes) from trouble
    finally:
        pool.shutdown(cancel_futures=True)


_work: list[tuple[Callable[[Segment, Question], Tally], Question]] = []


def _begin(compare: Callable[[Segment, Question], Tally], question: Question) -> None:
    """Begin a worker: what is asked of every part is sent once."""
    _work.append((compare, question))


def _compare(part: Segment) -> Tally:
    compare, question = _work[0]
    return compare(part, question)
