"""A Dask cluster: the same report from its workers, one that dies included; what is refused."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

from compare.report.document import encode_report
from cutover.cluster import HERE, Workers, dask, workers_at
from cutover.reports import CaptureComparison, report_on
from cutover.selftest.exchanges import Script, batch, exchange, store
from tests.support.commands import run_command

COLD = Script(system="冷")
SEGMENTS = 6
EACH = 5


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """A cluster of two workers, as a team has one."""
    with LocalCluster(2, 1, dashboard_address="127.0.0.1:0") as cluster:
        yield cluster.scheduler_address


def captures(folder: Path) -> str:
    """Write segments in which an exchange in seven differs."""
    for segment in range(SEGMENTS):
        numbers = range(segment * EACH, (segment + 1) * EACH)
        runs = [exchange(graph=COLD if n % 7 == 0 else None, number=n) for n in numbers]
        store(folder, batch(*runs), name=f"{segment}.jsonl.zst")
    return str(folder)


def reported(place: str, workers: Workers) -> bytes:
    """Return the report on captures, byte for byte, and check how much it is about."""
    comparison = CaptureComparison(place, workers=workers)
    read: list[int] = []
    tally = comparison.tally(read.append)
    assert (tally.pairs, tally.different, sum(read)) == (SEGMENTS * EACH, 5, comparison.size)
    return encode_report(report_on(comparison, tally))


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


@pytest.mark.untraced
def test_workers_of_a_cluster_give_the_same_report(scheduler: str, tmp_path: Path) -> None:
    """Whoever compares: this process, or workers, one of which dies with a part half done."""
    place = captures(tmp_path / "captures")
    here = reported(place, HERE)
    with workers_at(scheduler) as workers:
        assert workers.count == 2
        assert reported(place, workers) == here
        assert workers.executor is not None
        dying = DyingOnce(workers.executor, tmp_path / "died")
        assert reported(place, Workers(dying, 2)) == here
    assert (tmp_path / "died").exists()


@pytest.mark.untraced
def test_the_command_starts_a_cluster_here(tmp_path: Path) -> None:
    """`--scheduler local` starts one, and leaves nothing running."""
    place = captures(tmp_path / "captures")
    options = "--scheduler", "local", "--processes", "2", "-o", tmp_path / "out"
    status, said = run_command("diff", place, *options)
    assert status == 1, said
    assert (tmp_path / "out" / "report.json").exists()


def test_no_cluster_is_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address where nobody listens; a scheduler is for captures alone."""
    monkeypatch.setattr(dask, "_CONNECT", 0.2)
    place = captures(tmp_path / "captures")
    out = "-o", tmp_path / "out"
    status, said = run_command("diff", place, "--scheduler", "tcp://127.0.0.1:1", *out)
    assert (status, "no Dask cluster at 'tcp://127.0.0.1:1'" in said) == (2, True), said
    status, said = run_command("diff", "a.json", "b.json", "--scheduler", "local", *out)
    assert (status, "--scheduler compares captures" in said) == (2, True), said
    assert not (tmp_path / "out").exists()


@pytest.mark.untraced
def test_other_versions_are_refused(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose code is other than ours might find other differences."""
    monkeypatch.setattr(dask, "python_version", lambda: "3.0.1")
    with pytest.raises(dask.OtherVersions, match=r"python 3\.1\d\.\d+, here 3\.0\.1"):
        workers_at(scheduler).__enter__()


@pytest.mark.untraced
def test_a_call_that_ends_every_worker_ends_the_comparison() -> None:
    """It is said which cluster, and nothing waits for it."""

    def deadly() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def ask() -> None:
        with workers_at("local", 1) as workers:
            assert workers.executor is not None
            workers.executor.submit(deadly).result()

    with pytest.raises(dask.ClusterLost, match="did not finish"):
        ask()
