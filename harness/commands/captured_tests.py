"""Captures as tests of pytest: each exchange is replayed, and compared with what was served."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from compare.differences import Pair, differences
from compare.pairs import Rows, pair_row, served_runs
from compare.report.document import make_report
from compare.report.page import render
from compare.verdict import Read
from cutover.errors import CutoverError
from cutover.flow import Flow
from cutover.records import RunRecord, TapeRecord
from harness import root
from harness.commands.replay import ReplayJob, job_of, replay_lines
from harness.config import load
from harness.services import flow_of
from router.captures import CaptureReader, Captures, Store

JOB: Final = pytest.StashKey[ReplayJob]()


def pytest_configure(config: pytest.Config) -> None:
    """Have captures collected, too, or alone where no path is given; raises `UsageError`."""
    here, file = config.invocation_params.dir, config.getoption("--cutover-config")
    folder, stack = (here / config.getoption("--cutover")).resolve(), "--cutover-stack"
    try:
        settings = load(here / file if file else next(here.glob("cutover.toml"), None))
        job = job_of(str(folder), config.getoption(stack), None, "1/1", settings)
    except CutoverError as error:
        raise pytest.UsageError(str(error)) from error
    given = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else []
    config.args = [*(one for one in given if (here / one).resolve() != folder), str(folder)]
    config.stash[JOB] = job


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return what collects the captures."""
    ours = str(path.resolve()) == parent.config.stash[JOB].captures
    return _Captures.from_parent(parent, path=path) if ours else None


class _Captures(pytest.Directory):
    """A folder of captures."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a test for each exchange; raises `CollectError` where lines are lost, or none."""
        reader, found = CaptureReader(Store(str(self.path))), dict[str, list[RunRecord]]()
        for line in reader:
            found.setdefault(line.exchange, []).append(line)
        lost = ", ".join(f"{n} {kind}" for kind, n in reader.damage.items() if kind != "duplicate")
        if lost or not found:
            message = f"{self.path}: {f'not whole: {lost}' if lost else 'there is no exchange'}"
            raise self.CollectError(message)
        for exchange, lines in sorted(found.items(), key=lambda one: (one[1][0].flow, one[0])):
            test: _Exchange = _Exchange.from_parent(self, name=f"{lines[0].flow}-{exchange}")
            test.lines, test.location = lines, (self.nodeid, None, test.name)
            yield test


class _Exchange(pytest.Item):
    """The test of an exchange."""

    lines: Sequence[RunRecord]

    def runtest(self) -> None:
        """Replay the exchange; fail where it differs or is damaged, skip what has no replay."""
        job, pairs = self.config.stash[JOB], list[Pair]()

        def equal(flow: Flow, tape: TapeRecord, one: RunRecord, played: RunRecord) -> bool:
            pairs.append(Pair(one, played, tape))
            return root.equal(flow, tape, one, played)

        unstored = Captures(Store(job.out), None)  # it is not opened, and writes nothing
        served = served_runs(self.lines)
        counts, _ = asyncio.run(replay_lines(job, served, unstored, equal, done=set()))
        state = next((one for one in counts if one != "read"), "damaged")
        if pairs and state in {"different", "failed"}:
            pytest.fail(_report(pairs[-1], job), pytrace=False)
        if state in {"failed", "damaged", "redaction_failed", "unknown_flow"}:
            pytest.fail(f"{state}: it cannot be replayed and compared", pytrace=False)
        if state != "equal":
            pytest.skip(f"not replayed: {state.replace('_', ' ')}")


def _report(pair: Pair, job: ReplayJob) -> str:
    """Return what a report says of a pair."""
    rows, flow = Rows(), flow_of(pair.served.flow, job.settings)
    row = pair_row(pair, pair.served, flow, differences)
    rows.show(row, pair, flow)
    read, today = Read(files=1, lines=2, damage={}), datetime.now(UTC).date()
    more: Any = {"made_at": 0, "today": today, "waivers": {}, "exemplars": rows.exemplars}
    return render("pair.txt.j2", report=make_report([row], (), read, **more)).strip()
