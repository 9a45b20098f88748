"""`cutover report nodes` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutover.selftest.exchanges import batch, store
from tests.support.commands import run_command
from tests.support.records import a_run

NODES = {"model_call": 30_000, "clean[up]": 10_000}


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    """Store two exchanges: one with both stacks, one of a stack without nodes."""
    runs = (
        a_run(nodes=NODES, run_us=50_000),
        a_run(role="shadow", stack="graph", nodes={"model_call": 1_234}, run_us=2_000),
        a_run("f", stack="graph"),
    )
    store(tmp_path / "captures", batch(runs))
    return tmp_path / "captures"


def test_the_table_has_both_stacks_side_by_side(captures: Path) -> None:
    """Milliseconds and shares, and what is spent outside the nodes."""
    status, output = run_command("report", "nodes", captures)
    assert status == 0
    lines = [line.split() for line in output.splitlines()]
    assert ["chat,", "serving"] in lines
    assert ["model_call", "1", "30.00", "30.00", "60.0", "%", *"––––"] in lines
    assert ["clean[up]", "1", "10.00", "10.00", "20.0", "%", *"––––"] in lines
    assert ["outside", "nodes", "20.0", "%", "–"] in lines
    assert ["whole", "run", "1", "50.00", "50.00", "100", "%", *"––––"] in lines
    assert ["graph:", "1", "run", "without", "a", "node"] in lines
    assert ["chat,", "shadow"] in lines
    assert ["model_call", "1", "1.23", "1.23", "61.7", "%"] in lines


def test_a_document_holds_the_same(captures: Path) -> None:
    """For machines; of one flow, where only that is wanted."""
    status, output = run_command("report", "nodes", captures, "--json")
    found = json.loads(output)
    assert (status, found["runs"], found["damaged"]) == (0, 3, {})
    assert found["tables"][0]["nodes"][0] == {
        "node": "model_call",
        "stacks": {"legacy": {"runs": 1, "median_ms": 30.0, "p95_ms": 30.0, "share": 0.6}},
    }
    assert run_command("report", "nodes", captures, "--flow", "session") == (0, "no runs\n")


def test_damage_is_said(captures: Path) -> None:
    """And leaves the status, where something could be read."""
    (captures / "torn.jsonl").write_bytes(b'{"v":1,"exch')
    status, output = run_command("report", "nodes", captures)
    assert status == 0
    assert "1 torn passed over" in output
    assert "line 1 does not end" in output


@pytest.mark.parametrize("content", [None, b"no batch at all, and longer than a header"])
def test_what_cannot_be_read_exits_2(tmp_path: Path, content: bytes | None) -> None:
    """A place that is not there, or captures of which nothing can be read."""
    place = tmp_path / "captures"
    if content is not None:
        store(place, content)
    assert run_command("report", "nodes", place)[0] == 2
