"""Every planted fault is found, and the first cause that is named for it is the one planted."""

import random
from typing import get_args

import pytest

from compare.differences import AT_ONCE, SLIGHT, Kind, differences
from harness.root import equal_shadow
from tests.compare.exchanges import ALL, flow_of, run
from tests.compare.planted import ROWS
from tests.compare.test_differences import brief
from tests.compare.variations import varied

pytestmark = [pytest.mark.virtual, pytest.mark.slow]

SEVERAL = {
    "completions: graph refuses what legacy answers",
    "pipeline, plain: graph stores nothing",
    "pipeline, warned: legacy says nothing of its limit",
    "session, known: legacy legacy's history lacks its first turn",
    "session, plain: graph does not learn",
    "session, plain: graph thinks before it has opened a session",
}
"""Faults with more than one cause: a stack that stores nothing makes no id for it either."""


@pytest.mark.parametrize("name", ROWS)
async def test_a_planted_fault_is_the_first_cause(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the only one, at its very place; the ledger's state and the report's say the same.

    Also where the faulty run is cut otherwise, with other ids, on another day.
    """
    row = ROWS[name]
    row.plant(monkeypatch)
    compared = await run(row.exchange)
    drawn = random.Random(name)
    for pair in (compared.pair, varied(compared.pair, compared.flow, drawn, moved=False)):
        found = differences(pair, compared.flow)
        causes = brief(found)
        assert causes[0] == row.cause, found.differences
        assert set(causes) == {row.cause} or name in SEVERAL
        assert found.equal == (row.cause.split()[0] in SLIGHT)
    assert equal_shadow(compared.served, compared.played) == (row.cause.split()[0] in SLIGHT)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ROWS)
async def test_a_planted_fault_is_found_whichever_stack_serves(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the graph serves, legacy is played on what the graph has asked.

    When the texts of a service came cannot be seen where it plays.
    """
    row = ROWS[name]
    row.plant(monkeypatch)
    compared = await run(row.exchange, serves="graph")
    found = differences(compared.pair, compared.flow)
    if found.left_out == (AT_ONCE,):
        assert row.cause == "held_back content"
        return
    assert found.equal == (row.cause.split()[0] in SLIGHT), found.differences
    assert brief(found)


def test_the_rows_are_enough() -> None:
    """Every kind of difference, every flow, both stacks."""
    assert len(ROWS) >= 60
    assert {row.cause.split()[0] for row in ROWS.values()} == set(get_args(Kind))
    flows = {flow_of(name).name for name in ALL}
    assert {(flow_of(row.exchange).name, row.stack) for row in ROWS.values()} == {
        (flow, stack) for flow in flows for stack in ("legacy", "graph")
    }
