"""Dask clusters: one that a team operates, or one started on this machine.

A worker that dies is no failure: the scheduler runs its call again elsewhere.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager
from importlib.metadata import version
from platform import python_version
from typing import Final

from contract.errors import CutoverError, MissingExtra
from cutover.cluster import LOCAL, Workers
from cutover.wiring.stacks import fingerprint

try:
    from distributed import Client, LocalCluster
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker
except ImportError as missing:
    raise MissingExtra(adapter="--scheduler", extra="dask") from missing

_CONNECT: Final = 10.0
"""Seconds in which a scheduler must answer, and have a worker."""
_PACKAGES: Final = ("dask", "distributed", "deepdiff", "msgspec", "numpy", "orjson", "zstandard")
"""Whose versions must be the same on both sides: what is sent, and what results depend on."""
_CODE: Final = ("compare", "contract", "evidence")
_LOST = (KilledWorker, CommClosedError, CancelledError)


class SchedulerUnreachable(CutoverError):
    """No scheduler answers, or it has no worker."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(f"no Dask cluster at {address!r}: {why}")


class OtherVersions(CutoverError):
    """A worker runs other code than this process: its results might be others."""

    def __init__(self, worker: str, differing: str) -> None:
        super().__init__(f"worker {worker} has {differing}: install the same on both sides")


class ClusterLost(CutoverError):
    """The scheduler has gone, or a call ended one worker after the other."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(f"the Dask cluster at {address!r} did not finish: {why}")


@contextmanager
def cluster_workers(scheduler: str, processes: int | None) -> Iterator[Workers]:
    """Connect to a scheduler, or start a `local` cluster; see `workers_at`."""
    with _connected(scheduler, processes) as client:
        try:
            client.wait_for_workers(1, timeout=_CONNECT)
        except TimeoutError as none:
            raise SchedulerUnreachable(scheduler, "it has no workers") from none
        _refuse_other_versions(client)
        count = sum(client.nthreads().values())
        # Every call is its own: two parts of equal arguments may have changed in between.
        executor = client.get_executor(pure=False)
        try:
            yield Workers(executor, count)
        except _LOST as lost:
            raise ClusterLost(scheduler, str(lost) or type(lost).__name__) from lost
        finally:
            executor.shutdown(wait=False)


@contextmanager
def _connected(scheduler: str, processes: int | None) -> Iterator[Client]:
    if scheduler == LOCAL:
        with (
            LocalCluster(
                n_workers=processes or len(os.sched_getaffinity(0)),
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",  # a free port, and nobody else reaches it
                silence_logs=logging.ERROR,
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client
        return
    try:
        client = Client(scheduler, timeout=_CONNECT, set_as_default=False)
    except (OSError, ValueError) as trouble:
        raise SchedulerUnreachable(scheduler, str(trouble)) from trouble
    with client:
        yield client


def versions() -> Mapping[str, str]:
    """Return what this process runs: Python, packages, and a digest of the code that compares."""
    return {
        "python": python_version(),
        **{name: version(name) for name in _PACKAGES},
        **{f"code of {name}": fingerprint(name) for name in _CODE},
    }


def _refuse_other_versions(client: Client) -> None:
    """Raise `OtherVersions` for the first worker that runs something else."""
    own = versions()
    for worker, found in client.run(versions, on_error="return").items():
        if isinstance(found, BaseException):
            raise OtherVersions(worker, f"no cutover[compare] that can be imported ({found})")
        differing = [
            f"{name} {found.get(name, 'not at all')}, here {here}"
            for name, here in own.items()
            if found.get(name) != here
        ]
        if differing:
            raise OtherVersions(worker, "; ".join(differing))
