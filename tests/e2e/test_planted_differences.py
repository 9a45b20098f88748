"""What `cutover diff` says of copies of the graph stack with one thing changed."""

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from compare.report import Report
from cutover.cli import app
from cutover.selftest.cases import case
from cutover.selftest.stream_faults import SCENE
from tests.support.planted_faults import PLANTED, captured, planted, served

PAIRS = 150


def diff(captures: Path, out: Path) -> tuple[int, Report]:
    """Run the command; gives its exit status and its report."""
    done = CliRunner().invoke(app, ["diff", str(captures), "-o", str(out)])
    return done.exit_code, msgspec.json.decode((out / "report.json").read_bytes(), type=Report)


@pytest.mark.slow
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_difference_is_found_once_on_its_layer(fault: str, tmp_path: Path) -> None:
    """One cause, one finding, the right layer, and exit status 1."""
    captures = captured(served([SCENE], planted(fault)), tmp_path / "captures")
    status, report = diff(captures, tmp_path / "report")
    assert status == 1
    found = [(cluster.layer, cluster.exchanges) for cluster in report.clusters]
    assert found == [(PLANTED[fault][1], 1)]


@pytest.mark.untraced
@pytest.mark.slow
def test_nothing_is_found_in_equal_pairs(tmp_path: Path) -> None:
    """Exchanges of every kind, shadowed by the unchanged stack: exit status 0.

    That the stacks are equal is tests/flows' to prove; that a diff of many says so, replay's.
    """
    captures = captured(served(map(case, range(PAIRS))), tmp_path / "captures")
    status, report = diff(captures, tmp_path / "report")
    assert (status, report.counts.pairs, report.clusters) == (0, PAIRS, ())
