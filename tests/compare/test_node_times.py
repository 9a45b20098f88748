"""Node times of captured runs: counted once each, by flow, role and stack, within bounds."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.clusters import NAME_AT_MOST, OTHERS
from compare.input.damage import CapturesUnreadable
from compare.node_times import (
    NAMES_AT_MOST,
    Group,
    NodeReport,
    NodeTally,
    insert_opened,
    read_node_times,
)
from contract.records import RunRecord, encode_run
from cutover.selftest.exchanges import batch, store
from tests.support.records import a_run

NAMES = ("recall", "process", "tools", "learn")
NODES = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 10**9), max_size=4)
WHOLES = st.sampled_from([0, 1, 5_000_000_000])
STACKS = st.sampled_from(["legacy", "graph", "another"])


@given(st.lists(st.tuples(STACKS, NODES, WHOLES), max_size=40))
def test_times_are_those_of_the_runs(runs: list[tuple[str, dict[str, int], int]]) -> None:
    """Percentiles by nearest rank; shares of the time of the runs that recorded their whole."""
    tally = NodeTally()
    for stack, nodes, whole in runs:
        tally.add(Group("f", "serving", stack), nodes, whole)
    for table in tally.report("here").tables:
        assert table.stacks == tuple(
            sorted({stack for stack, *_ in runs}, key=lambda one: (one != "legacy", one))
        )
        for stack in table.stacks:
            own = [(nodes, whole) for one, nodes, whole in runs if one == stack]
            timed = [nodes for nodes, whole in own if nodes and whole]
            total = sum(whole for nodes, whole in own if nodes)
            rows = {row.node: row.stacks[stack] for row in table.nodes if stack in row.stacks}
            assert rows.keys() == {node for nodes, _ in own for node in nodes}
            assert table.untimed.get(stack, 0) == sum(not nodes for nodes, _ in own)
            for node, times in rows.items():
                values = [nodes[node] for nodes, _ in own if node in nodes]
                assert times.runs == len(values)
                for p, found in ((50, times.median_ms), (95, times.p95_ms)):
                    assert found == np.percentile(values, p, method="inverted_cdf") / 1_000
                spent = sum(nodes.get(node, 0) for nodes in timed)
                assert times.share == (spent / total if total else None)
            assert (stack in table.total) == (stack in table.outside) == bool(total)
            if total:
                in_nodes = sum(sum(nodes.values()) for nodes in timed) / total
                assert table.outside[stack] == pytest.approx(max(0.0, 1 - in_nodes))
                assert table.total[stack].runs == len(timed)


@given(st.lists(st.lists(st.sampled_from(NAMES), unique=True), max_size=8))
def test_nodes_stand_once_each_behind_the_one_before(runs: list[list[str]]) -> None:
    """What stands there already keeps its order."""
    order: list[str] = []
    for nodes in runs:
        before = list(order)
        insert_opened(order, nodes)
        assert [node for node in order if node in before] == before
        assert sorted(order) == sorted({*before, *nodes})
    if runs and runs[0]:
        assert [node for node in order if node in runs[0]] == runs[0]


def test_a_node_that_comes_later_stands_where_its_run_had_it() -> None:
    """Not at the end."""
    order = ["recall", "process", "learn"]
    insert_opened(order, ["recall", "process", "tools", "learn"])
    assert order == ["recall", "process", "tools", "learn"]


def read(folder: Path, *flows: str) -> NodeReport:
    """Read what a folder holds."""
    return read_node_times(str(folder), flows)


def timed(number: int = 0, **fields: object) -> RunRecord:
    """Return a run of 4 ms, 3 of them in one node."""
    known = {"nodes": {"model_call": 3_000}, "run_us": 4_000, **fields}
    return a_run(f"x-{number}", **known)


def test_served_runs_and_shadows_stand_apart(tmp_path: Path) -> None:
    """And so do flows; both stacks of one are in one table, legacy first."""
    runs = (
        timed(stack="graph"),
        timed(role="shadow", stack="legacy", nodes={"model_call": 10}, run_us=20),
        timed(1),
        timed(2, flow="session"),
    )
    store(tmp_path, batch(runs))
    report = read(tmp_path)
    assert [(one.flow, one.role, one.stacks) for one in report.tables] == [
        ("chat", "serving", ("legacy", "graph")),
        ("chat", "shadow", ("legacy",)),
        ("session", "serving", ("legacy",)),
    ]
    assert (report.runs, report.damaged, report.unread) == (4, {}, False)
    [row] = report.tables[1].nodes
    assert row.stacks["legacy"].share == 0.5
    assert [one.flow for one in read(tmp_path, "session").tables] == ["session"]


def test_a_run_counts_once(tmp_path: Path) -> None:
    """However often it is read; a line for a shadow that never came is no run."""
    dropped = timed(role="shadow", stack="graph", shadow="dropped", nodes={}, run_us=0)
    store(tmp_path / "a", batch((timed(), dropped)))
    store(tmp_path / "b", batch((timed(),)))
    report = read(tmp_path)
    assert (report.runs, report.damaged, report.unread) == (1, {"duplicate": 1}, False)
    assert [table.untimed for table in report.tables] == [{}]


def test_older_records_have_nodes_and_no_whole(tmp_path: Path) -> None:
    """Under the names they were written with; a share is of the runs that know their time."""
    older = (timed(1, nodes={"prepare": 8_000}, run_us=0), timed(2, nodes={}, run_us=0))
    store(tmp_path, batch((timed(), *older)))
    [table] = read(tmp_path).tables
    shares = {
        row.node: (row.stacks["legacy"].runs, row.stacks["legacy"].share) for row in table.nodes
    }
    assert shares == {"prepare": (1, 0.0), "model_call": (1, 0.75)}
    assert (table.total["legacy"].runs, table.untimed) == (1, {"legacy": 1})


def test_damage_is_counted_and_named(tmp_path: Path) -> None:
    """The runs beside it are read."""
    whole = encode_run(timed()).rstrip()
    for line in (
        b"{}",
        b"no line",
        whole.replace(b'"v":1', b'"v":2'),
        whole.replace(b'"serving"', b'"nobody"'),
        whole.replace(b"3000", b"-3"),
        whole.replace(b"3000", str(1 << 63).encode()),
    ):
        (tmp_path / "a.jsonl").write_bytes(whole + b"\n" + line + b"\n")
        report = read(tmp_path)
        assert (report.runs, sum(report.damaged.values()), report.unread) == (1, 1, True)
        assert "line 2" in report.damage[0].detail
    (tmp_path / "a.jsonl").write_bytes(whole + b"\n" + whole[:90])
    assert read(tmp_path).damaged == {"torn": 1}
    with pytest.raises(CapturesUnreadable):
        read(tmp_path / "nowhere")


def test_names_are_bounded() -> None:
    """Captures may hold any: of flows, stacks and nodes."""
    tally = NodeTally()
    tally.add(Group("f", "serving", "legacy"), {"known": 1}, 1)
    for n in range(NAMES_AT_MOST * 2):
        tally.add(Group("f", "serving", "legacy"), {f"n{n}": 1, "known": 1}, 2)
        tally.add(Group(f"f{n}", "serving", f"s{n}"), {"known": 1}, 1)
    tables = tally.report("here").tables
    assert sum(1 + len(table.nodes) for table in tables) <= NAMES_AT_MOST + 4  # and the others
    [others] = [table for table in tables if table.flow == OTHERS]
    assert others.stacks == (OTHERS,)
    rows = {row.node: row.stacks["legacy"].runs for row in tables[0].nodes}
    assert rows["known"] == 1 + NAMES_AT_MOST * 2
    assert rows[OTHERS] > NAMES_AT_MOST


def test_long_names_are_shortened(tmp_path: Path) -> None:
    """As in every report."""
    long = "x" * 10_000
    store(tmp_path, batch((timed(flow=long, nodes={long: 1}),)))
    encoded = msgspec.json.encode(read(tmp_path).tables)
    assert len(encoded) < 4 * NAME_AT_MOST + 400
