"""A Dask cluster: what is refused, and what its workers do with stacks that break."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from distributed import LocalCluster

from cutover.cluster import dask, workers_at
from cutover.replay import PlayOptions, ReplayPlan, ServicePlan, cluster_needs, replay, sides_of
from cutover.replay.parts import Part, PartReader
from cutover.replay.pool import LOG, BlobsAway
from cutover.replay.session import OnlyHere
from cutover.selftest.exchanges import Script, batch, exchange, store
from loadtests.processes import child_environment, module_command
from router.config.schema import Settings
from tests.cutover.cluster.conftest import NO_PAGE, wait_for
from tests.cutover.replay.broken import MARK
from tests.cutover.replay.conftest import answered
from tests.cutover.replay.conftest import store as replayable
from tests.support.commands import run_command
from tests.support.deployment import until

COLD = Script(system="冷")
SEGMENTS = 6
EACH = 5
BROKEN = "tests.cutover.replay.broken:NAMED"

pytestmark = [pytest.mark.slow, pytest.mark.sockets]


def captures(folder: Path) -> str:
    """Write segments in which an exchange in seven differs."""
    for segment in range(SEGMENTS):
        numbers = range(segment * EACH, (segment + 1) * EACH)
        runs = [exchange(graph=COLD if n % 7 == 0 else None, number=n) for n in numbers]
        store(folder, batch(*runs), name=f"{segment}.jsonl.zst")
    return str(folder)


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
    monkeypatch.setattr("cutover.cluster.python_version", lambda: "3.0.1")
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


def test_a_cluster_without_workers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing would ever be done: it is said at once, or nearly."""
    monkeypatch.setattr(dask, "_CONNECT", 0.2)
    with (
        LocalCluster(n_workers=0, dashboard_address=NO_PAGE) as cluster,
        pytest.raises(dask.SchedulerUnreachable, match="it has no workers"),
    ):
        workers_at(cluster.scheduler_address).__enter__()


OTHER = """
from cutover import cluster
cluster.python_version = lambda: "3.0.1"
"""


@pytest.mark.untraced
def test_a_worker_that_joins_later_is_asked_first(tmp_path: Path) -> None:
    """Of other code, it does no piece: the work ends, and says which worker that was."""
    (tmp_path / "other.py").write_text(OTHER)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=NO_PAGE) as cluster,
        workers_at(cluster.scheduler_address) as workers,
    ):
        command = module_command(
            "distributed.cli.dask_worker", cluster.scheduler_address, "--nthreads=1", "--no-nanny"
        )
        preload = f"--preload={tmp_path / 'other.py'}"
        late = subprocess.Popen(
            [*command, preload, "--no-dashboard", "--death-timeout=5"],
            env=child_environment(),
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(cluster.scheduler_address, 2)
            assert workers.executor is not None
            calls = [workers.executor.submit(os.getpid) for _ in range(8)]
            with pytest.raises(dask.OtherVersions, match=r"has python 3\.0\.1, here 3\.1"):
                [call.result() for call in calls]
        finally:
            late.terminate()
            late.wait()


@pytest.mark.untraced
def test_a_broken_stack_is_killed_where_it_runs(scheduler: str, tmp_path: Path) -> None:
    """It blocks, or ends its process: the run is lost and named, and its last position is here."""
    names = ("m-0", f"{MARK}-stands", "m-2", f"{MARK}-ends", "m-5")
    out, captures = tmp_path / "out", replayable(answered(names), tmp_path / "captures")
    how = PlayOptions("recorded", 0.5)
    plan = ReplayPlan(str(captures), out, sides_of(BROKEN), how)
    with workers_at(scheduler, needs=cluster_needs(plan)) as workers:
        counts = replay(plan, workers=workers)
    assert (counts.exchanges, counts.equal) == (5, 3)
    assert counts.outcomes == {"completed": 3, "timeout": 1, "failed": 1}
    assert "_block" in (out / LOG).read_text("utf-8")


@pytest.mark.untraced
def test_a_worker_that_does_not_see_long_texts_says_so(
    scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are beside the captures: on this machine alone, as far as the worker can tell."""
    [[serving]] = answered(["m-0"])
    assert serving.request is not None
    body = {**msgspec.json.decode(serving.request.body), "content": "图" * 30_000}
    request = msgspec.structs.replace(serving.request, body=msgspec.Raw(msgspec.json.encode(body)))
    alone = msgspec.structs.replace(serving, request=request, shadow="")
    captures = replayable([[alone]], tmp_path / "captures")
    assert list(captures.rglob("blobs/*"))
    plan = ReplayPlan(str(captures), tmp_path / "out", sides_of("legacy"))
    elsewhere = tmp_path / "elsewhere"

    def moved(part: Part) -> Part:
        return replace(part, place=str(elsewhere / "flow=chat" / "0.jsonl.zst"))

    with workers_at(scheduler, needs=cluster_needs(plan)) as workers:
        monkeypatch.setattr(PartReader, "parts", _each(PartReader.parts, moved))
        with pytest.raises(BlobsAway, match="name the captures by a folder or URL"):
            replay(plan, workers=workers)


def _each(read: Callable[..., Iterator[Part]], change: Callable[[Part], Part]) -> Any:
    return lambda *given: map(change, read(*given))


def test_what_only_this_process_can_replay_is_refused(tmp_path: Path) -> None:
    """A stack in the command's own process, for a debugger, and a service."""
    services = ServicePlan(Settings(), {})
    with pytest.raises(OnlyHere, match="graph is an address"):
        cluster_needs(ReplayPlan("", tmp_path, sides_of("graph"), services=services))
    options = "--scheduler", "local", "--processes", "0", "--stack", "legacy"
    status, said = run_command("replay", tmp_path, *options, "-o", tmp_path / "out")
    assert (status, "--processes 0 runs them in this process" in said) == (2, True), said


@pytest.mark.untraced
def test_every_command_takes_a_scheduler(scheduler: str, tmp_path: Path) -> None:
    """`replay`, `selftest` and `noise`: as they are typed."""
    captures = replayable(answered(["m-0", "m-1"]), tmp_path / "captures")
    there = "--scheduler", scheduler, "-o"
    status, said = run_command("replay", captures, "--stack", "legacy", *there, tmp_path / "replay")
    assert (status, (tmp_path / "replay" / "report" / "report.json").exists()) == (0, True), said
    options = "--pairs", "8", "--faults", "2"
    status, said = run_command("selftest", *options, *there, tmp_path / "selftest")
    assert (status, (tmp_path / "selftest" / "selftest.json").exists()) == (0, True), said
    status, said = run_command("noise", captures, *there, tmp_path / "noise")
    assert (status, (tmp_path / "noise" / "noise.json").exists()) == (3, True), said


@pytest.mark.untraced
@pytest.mark.parametrize("killed", [False, True])
def test_no_process_outlives_the_worker_that_started_it(tmp_path: Path, *, killed: bool) -> None:
    """Be it that its cluster ends, or that it dies."""
    captures = replayable(answered(["m-0"]), tmp_path / "captures")
    plan = ReplayPlan(str(captures), tmp_path / "out", sides_of("legacy"))
    with workers_at("local", 1, cluster_needs(plan)) as workers:
        assert workers.executor is not None
        assert replay(plan, workers=workers).equal == 1
        worker, started = workers.executor.submit(_own_processes).result()
        assert len(started) >= 2  # what forks, and what replays
        if killed:
            os.kill(worker, signal.SIGKILL)
            asyncio.run(until(lambda: not any(map(_runs, started))))
    asyncio.run(until(lambda: not any(map(_runs, started))))


def _own_processes() -> tuple[int, list[tuple[int, float]]]:
    own = psutil.Process()
    return own.pid, [(one.pid, one.create_time()) for one in own.children(recursive=True)]


def _runs(process: tuple[int, float]) -> bool:
    try:
        found = psutil.Process(process[0])
        return found.create_time() == process[1] and found.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
