"""Dask clusters: one that a team operates, or one started on this machine.

A worker that dies is no failure: the scheduler runs its call again elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeVar

from compare.sharing import Workers, cores
from contract.errors import CutoverError, MissingExtra
from cutover.cluster import LOCAL, Needs, differing, versions

try:
    from distributed import Client, LocalCluster, get_worker
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker
except ImportError as missing:
    raise MissingExtra(adapter="--scheduler", extra="dask") from missing

_CONNECT: Final = 10.0
"""Seconds in which a scheduler must answer, and have a worker."""
_START: Final = 60.0
"""Seconds in which the workers of a cluster that is started here must be there."""
_LOST = (KilledWorker, CommClosedError, CancelledError)

Result = TypeVar("Result")


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
def cluster_workers(scheduler: str, processes: int | None, needs: Needs) -> Iterator[Workers]:
    """Connect to a scheduler, or start a `local` cluster; see `workers_at`."""
    with _connected(scheduler, processes) as client:
        try:
            # A team's cluster may grow still; of one that is started here all are waited for.
            due = (processes or cores()) if scheduler == LOCAL else 1
            client.wait_for_workers(due, timeout=_CONNECT if due == 1 else _START)
        except TimeoutError as none:
            raise SchedulerUnreachable(scheduler, "it has no workers") from none
        own = versions(needs)
        for worker, found in client.run(versions, needs, on_error="return").items():
            _refuse_other(worker, found, own)
        count = sum(client.nthreads().values())
        # Every call is its own: two parts of equal arguments may have changed in between.
        executor = client.get_executor(pure=False)
        try:
            yield Workers(_CheckedExecutor(executor, needs, own), count)
        except _LOST as lost:
            raise ClusterLost(scheduler, str(lost) or type(lost).__name__) from lost
        finally:
            executor.shutdown(wait=False)


@contextmanager
def _connected(scheduler: str, processes: int | None) -> Iterator[Client]:
    if scheduler == LOCAL:
        with (
            LocalCluster(
                n_workers=processes or cores(),
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


def _refuse_other(
    worker: str, found: Mapping[str, str] | BaseException, own: Mapping[str, str]
) -> None:
    """Raise `OtherVersions` for a worker that runs something else."""
    if isinstance(found, BaseException):
        raise OtherVersions(worker, f"no cutover that can be imported with its extras ({found})")
    if other := differing(found, own):
        raise OtherVersions(worker, other)


class _CheckedExecutor(Executor):
    """Runs calls on workers that run the same; one that joined later is asked by its first call."""

    def __init__(self, executor: Executor, needs: Needs, own: Mapping[str, str]) -> None:
        self._executor = executor
        self._needs = needs
        self._own = own

    def submit(
        self, fn: Callable[..., Result], /, *args: object, **kwargs: object
    ) -> Future[Result]:
        """Run a call on a worker; its future may raise `OtherVersions`."""
        return self._executor.submit(_checked, self._needs, self._own, fn, *args, **kwargs)


def _checked(
    needs: Needs,
    own: Mapping[str, str],
    work: Callable[..., Any],
    /,
    *args: object,
    **kwargs: object,
) -> Any:
    if _known_versions(needs) != own:
        _refuse_other(get_worker().address, _known_versions(needs), own)
    return work(*args, **kwargs)


_known_versions = cache(versions)
