"""Where parts of captures are worked on beyond this machine: a Dask cluster of the team's."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module

LOCAL = "local"
"""Names a cluster that is started on this machine, for as long as it is used."""


@dataclass(frozen=True, slots=True)
class Workers:
    """What runs calls elsewhere; None: here, on processes as the caller chooses.

    `count` is how many calls it runs at once.
    """

    executor: Executor | None = None
    count: int | None = None


HERE = Workers()
"""Processes of this machine, as many as are worth it."""


@contextmanager
def workers_at(scheduler: str | None, processes: int | None = None) -> Iterator[Workers]:
    """Yield the workers of a Dask scheduler, `tcp://HOST:PORT` or `local`; None: no cluster.

    `processes` are those of this machine: of a `local` cluster, and where there is none. Raises
    `MissingExtra`, `SchedulerUnreachable`, `OtherVersions`, and `ClusterLost` while it is used.
    """
    if scheduler is None:
        yield Workers(count=processes)
        return
    # Its library is an extra's, and takes half a second to import.
    with import_module("cutover.cluster.dask").cluster_workers(scheduler, processes) as workers:
        yield workers
