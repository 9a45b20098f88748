"""Whoever works, the result is the same: this process, two or four workers, one of which dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from compare.noise import read_noise
from compare.report.document import encode_report
from compare.sharing import ALONE, Workers
from contract.flows import SPECS
from contract.records import RunRecord
from cutover.cluster import COMPARING, RUNNING, Needs, workers_at
from cutover.replay import ReplayPlan, parts, replay
from cutover.replay.session import SUMMARY, cluster_needs
from cutover.replay.sides import Side, Sides
from cutover.reports import CaptureComparison, report_on
from cutover.selftest.cases import case
from cutover.selftest.exchanges import Script, batch, exchange, store
from cutover.selftest.trials import encode_outcome, self_test
from tests.compare.noise.messages import places
from tests.cutover.cluster.conftest import DyingOnce, wait_for
from tests.cutover.replay.conftest import store as captured
from tests.support.capture_files import runs
from tests.support.planted_faults import served

COLD = Script(system="冷")
SEGMENTS = 6
EACH = 5
STORED = 40
SIDES = Sides(Side("legacy", "tests.cutover.replay.broken:CRASHING"), Side("graph", ""))
"""A stack of a team's own; it is compared with its own past."""

pytestmark = [pytest.mark.slow, pytest.mark.sockets, pytest.mark.untraced]

Working = Callable[[Workers], object]


def everywhere(scheduler: str, larger: str, needs: Needs, marker: Path) -> Iterator[Workers]:
    """Yield two workers, four workers, and workers of which one dies with its first piece."""
    for address, count in ((scheduler, 2), (larger, 4)):
        wait_for(address, count)
        with workers_at(address, needs=needs) as workers:
            assert (workers.executor is None, workers.count) == (False, count)
            yield workers
    with workers_at(scheduler, needs=needs) as workers:
        assert workers.executor is not None
        yield Workers(DyingOnce(workers.executor, marker), workers.count)
    assert marker.exists()


def test_of_a_comparison(scheduler: str, larger: str, tmp_path: Path) -> None:
    """To the byte of the report; progress is told in full."""
    place = tmp_path / "captures"
    for segment in range(SEGMENTS):
        numbers = range(segment * EACH, (segment + 1) * EACH)
        pairs = [exchange(graph=COLD if n % 7 == 0 else None, number=n) for n in numbers]
        store(place, batch(*pairs), name=f"{segment}.jsonl.zst")

    def reported(workers: Workers) -> bytes:
        comparison = CaptureComparison(str(place), workers=workers)
        read: list[int] = []
        tally = comparison.tally(read.append)
        assert (tally.pairs, tally.different, sum(read)) == (SEGMENTS * EACH, 5, comparison.size)
        return encode_report(report_on(comparison, tally))

    here = reported(Workers(count=2))
    assert here == reported(ALONE)
    for workers in everywhere(scheduler, larger, COMPARING, tmp_path / "died"):
        assert reported(workers) == here


def test_of_noise(scheduler: str, larger: str, tmp_path: Path) -> None:
    """Messages of which runs are in several places, and halves of exchanges in two segments."""
    graph, legacy = places(tmp_path, 9)
    pairs = [exchange(number=number) for number in range(30, 36)]
    due = [msgspec.structs.replace(serving, shadow="due") for serving, _ in pairs]
    for number, (serving, (_, shadow)) in enumerate(zip(due, pairs, strict=True)):
        store(graph, batch((serving,)), name=f"a-{number}.jsonl.zst")
        store(graph, batch((shadow,)), name=f"b-{number}.jsonl.zst")

    def measured(workers: Workers) -> bytes:
        found = read_noise(str(graph), [str(one) for one in legacy], SPECS, workers=workers)
        assert found.study.messages == 9
        assert found.study.left_out == {"graph was played the model's answers": 6}
        return msgspec.json.encode(found)

    here = measured(Workers(count=2))
    assert here == measured(ALONE)
    for workers in everywhere(scheduler, larger, COMPARING, tmp_path / "died"):
        assert measured(workers) == here


def test_of_the_self_test(scheduler: str, larger: str, tmp_path: Path) -> None:
    """Faults of the lists, drawn ones and equal pairs."""

    def tested(workers: Workers) -> bytes:
        return encode_outcome(self_test(_no_bar, 120, drawn=10, seed=3, workers=workers))

    here = tested(Workers(count=2))
    assert here == tested(ALONE)
    for workers in everywhere(scheduler, larger, RUNNING, tmp_path / "died"):
        assert tested(workers) == here


def _no_bar(_what: str, _total: int) -> Callable[[int], None]:
    return lambda _: None


def test_of_a_replay(
    scheduler: str, larger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it counts, what it writes but for the time code took, and the report on that."""
    monkeypatch.setattr(parts, "EXCHANGES", 4)
    alone = [
        [run for run in pair if run.role == "serving"] for pair in served(map(case, range(STORED)))
    ]
    captures = str(captured(alone, tmp_path / "captures"))
    made = 0

    def replayed(workers: Workers, processes: int = 2) -> tuple[bytes, list[RunRecord], bytes]:
        nonlocal made
        made += 1
        folder = tmp_path / str(made)
        folder.mkdir()
        monkeypatch.chdir(folder)
        out = Path("out")
        counts = replay(ReplayPlan(captures, out, SIDES, processes=processes), workers=workers)
        assert counts.exchanges == STORED
        comparison = CaptureComparison(str(out))
        report = encode_report(report_on(comparison, comparison.tally(lambda _: None)))
        written = [msgspec.structs.replace(run, nodes={}, run_us=0) for run in runs(out)]
        return (out / SUMMARY).read_bytes(), written, report

    here = replayed(ALONE)
    assert here == replayed(ALONE, processes=0)
    needs = cluster_needs(ReplayPlan(captures, tmp_path, SIDES))
    assert "tests.cutover.replay.broken" in needs.code
    for workers in everywhere(scheduler, larger, needs, tmp_path / "died"):
        assert replayed(workers) == here
