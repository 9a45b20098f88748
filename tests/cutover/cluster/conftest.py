"""Dask clusters as a team has them, and one whose worker dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from tests.support.patience import PATIENCE_S

NO_PAGE = "127.0.0.1:0"
"""The page of statistics gets a free port."""


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """A cluster of two workers, as a team has one."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=NO_PAGE) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def larger() -> Iterator[str]:
    """One of four workers."""
    with LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=NO_PAGE) as cluster:
        yield cluster.scheduler_address


def wait_for(address: str, workers: int) -> None:
    """Wait until a cluster has so many workers: one that has died is replaced."""
    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(workers, timeout=PATIENCE_S)


class DyingOnce(Executor):
    """An executor on which the first call ends its worker's process in the middle."""

    def __init__(self, executor: Executor, marker: Path) -> None:
        self._executor, self._marker = executor, str(marker)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call there."""
        marker = self._marker

        def dying(*arguments: Any) -> Any:
            result = fn(*arguments)
            try:
                Path(marker).touch(exist_ok=False)
            except FileExistsError:
                return result
            os.kill(os.getpid(), signal.SIGKILL)
            return None

        return self._executor.submit(dying, *args, **kwargs)
