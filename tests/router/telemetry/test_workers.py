"""Several workers of one host: the page of any shows all."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from router.telemetry import instruments as i
from tests.conftest import ROOT
from tests.support.metrics_page import samples

pytestmark = pytest.mark.slow


class Worker:
    """A process with metrics of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def told(self, command: str) -> str:
        """Return a command; returns the page as it is then."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return msgspec.json.decode(self.process.stdout.readline(), type=str)


@contextmanager
def working(folder: Path) -> Iterator[Worker]:
    """Start a worker that keeps its values in a folder."""
    environ = {"PROMETHEUS_MULTIPROC_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.router.telemetry.worker"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            yield Worker(process)
        finally:
            process.kill()


def test_any_worker_tells_of_all(tmp_path: Path) -> None:
    """Counts and streams are summed, and what a worker can spare is the least of them."""
    with working(tmp_path) as one, working(tmp_path) as other:
        for worker in (one, other, other):
            worker.told("open")
            worker.told("settle")
        for worker in (one, other):
            page = worker.told("page")
            assert samples(page, i.LEDGER) == {("chat", "not_sampled", ""): 3}
            assert samples(page, i.OPEN_STREAMS) == {("chat",): 6}
            assert samples(page, i.UNSETTLED) == {(): 3}
            assert samples(page, i.BYTES_LEFT) == {(): 256 << 20}
            assert samples(page, i.LOOP_LAG).keys() <= {()}


def test_a_killed_worker_leaves_its_counts_and_no_streams(tmp_path: Path) -> None:
    """Its counts have happened; what it had open is gone with it."""
    with working(tmp_path) as one, working(tmp_path) as other:
        one.told("settle")
        other.told("settle")
        other.process.kill()
        other.process.wait()
        page = one.told("page")
        assert samples(page, i.LEDGER) == {("chat", "not_sampled", ""): 2}
        assert samples(page, i.OPEN_STREAMS) == {("chat",): 1}


def test_a_worker_that_begins_just_now_is_no_error(tmp_path: Path) -> None:
    """Its file is there, and nothing in it yet."""
    (tmp_path / "counter_1.db").touch()
    with working(tmp_path) as one:
        one.told("settle")
        assert samples(one.told("page"), i.LEDGER) == {("chat", "not_sampled", ""): 1}
