"""Maps captures by processes or by workers of Dask: the same rows either way.

A pass over the heads of all lines says which files an exchange is in. Then each batch of exchanges
is read from the files that hold its lines, and held: those of a shadow stand in the file of its
exchange or the next, those of a replay in one or two others.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context
from typing import Any, Final, NamedTuple

import msgspec

BATCH_EXCHANGES: Final = 500
Map = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]


class LineHead(msgspec.Struct, frozen=True):
    """What of a line says whose it is."""

    exchange: str
    role: str
    stack: str
    at: int
    v: int = 1


class Batch(NamedTuple):
    """Exchanges, and the files in which their lines are."""

    exchanges: frozenset[str]
    files: tuple[str, ...]


def batches(heads: Iterable[tuple[str, Sequence[LineHead]]], since: int, until: int) -> list[Batch]:
    """Return batches of the exchanges that began in a time, in microseconds since 1970.

    `heads` are those of each file; the line of the run that served first says when.
    """
    began, files = dict[str, int](), dict[str, dict[str, None]]()
    for name, of_file in heads:
        for head in of_file:
            if head.role == "serving" or head.exchange not in began:
                began[head.exchange] = head.at
            files.setdefault(head.exchange, {})[name] = None
    chosen = [one for one in files if since <= began[one] < until]
    parts = (chosen[at : at + BATCH_EXCHANGES] for at in range(0, len(chosen), BATCH_EXCHANGES))
    return [Batch(frozenset(one), tuple({f: None for e in one for f in files[e]})) for one in parts]


@contextmanager
def workers(processes: int, scheduler: str = "") -> Iterator[Map]:
    """Open what maps a function that can be pickled over tasks, in their order.

    Raises `ImportError` for a scheduler's address without Dask.
    """
    if scheduler:
        with import_module("distributed").Client(scheduler) as client:
            yield lambda function, tasks: client.gather(client.map(function, tasks, pure=False))
    elif processes == 1:
        yield map
    else:
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            yield pool.map
