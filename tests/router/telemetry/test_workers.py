"""Several workers of one host: the page of any shows all."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from router.telemetry import instruments as i
from tests.conftest import ROOT
from tests.support.forked import ForkedModule, forked_module
from tests.support.metrics_page import samples, traced

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Worker:
    """A process with metrics of its own."""

    module: ForkedModule

    def told(self, command: str) -> str:
        """Give it a command; returns the page as it is then."""
        self.module.stdin.write(command + "\n")
        return msgspec.json.decode(self.module.stdout.readline(), type=str)


@contextmanager
def working(folder: Path) -> Iterator[Worker]:
    """Start a worker that keeps its values in a folder."""
    module = "tests.router.telemetry.worker"
    with forked_module(module, cwd=ROOT, PROMETHEUS_MULTIPROC_DIR=str(folder)) as forked:
        yield Worker(forked)


def test_any_worker_tells_of_all(tmp_path: Path) -> None:
    """Counts and streams are summed, and what a worker can spare is the least of them."""
    with working(tmp_path) as one, working(tmp_path) as other:
        for worker in (one, other, other):
            worker.told("open")
            worker.told("settle")
        for worker in (one, other):
            page = worker.told("page")
            assert samples(page, i.LEDGER)["chat", "not_sampled", ""] == 3
            assert samples(page, i.OPEN_STREAMS) == {("chat",): 6}
            assert samples(page, i.UNSETTLED) == {(): 3}
            assert samples(page, i.BYTES_LEFT) == {(): 256 << 20}
            assert samples(page, i.LOOP_LAG).keys() <= {()}


def test_the_latest_exemplar_of_any_worker_is_shown(tmp_path: Path) -> None:
    """In each bucket; also of a worker that has ended."""
    with working(tmp_path) as one, working(tmp_path) as other:
        one.told("time 0.2 a1")
        other.told("time 0.2 b1")
        page = other.told("time 5.5 b2")
        assert exemplars(page) == {"0.25": "b1", "10.0": "b2"}
        other.module.send_signal(signal.SIGKILL)
        other.module.wait()
        assert exemplars(one.told("time 0.21 a2")) == {"0.25": "a2", "10.0": "b2"}


def exemplars(page: str) -> dict[str, str]:
    """Return the traces of exchanges' durations, by bucket."""
    return {le: one.labels["trace_id"] for le, one in traced(page, i.DURATION).items()}


def test_a_killed_worker_leaves_its_counts_and_no_streams(tmp_path: Path) -> None:
    """Its counts have happened; what it had open is gone with it."""
    with working(tmp_path) as one, working(tmp_path) as other:
        one.told("settle")
        other.told("settle")
        other.module.send_signal(signal.SIGKILL)
        other.module.wait()
        page = one.told("page")
        assert samples(page, i.LEDGER)["chat", "not_sampled", ""] == 2
        assert samples(page, i.OPEN_STREAMS) == {("chat",): 1}


def test_a_worker_that_begins_just_now_is_no_error(tmp_path: Path) -> None:
    """Its file is there, and nothing in it yet."""
    (tmp_path / "counter_1.db").touch()
    with working(tmp_path) as one:
        one.told("settle")
        assert samples(one.told("page"), i.LEDGER)["chat", "not_sampled", ""] == 1
