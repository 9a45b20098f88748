"""Every planted fault is found, and the first cause that is named for it is the one planted."""

from __future__ import annotations

from typing import get_args

import pytest

from compare.differences import AT_ONCE, SLIGHT, Difference, Kind, differences
from harness.root import equal_shadow
from tests.compare.exchanges import ALL, flow_of, run
from tests.compare.planted import ROWS

pytestmark = [pytest.mark.virtual, pytest.mark.slow]


def first_cause(found: tuple[Difference, ...]) -> str:
    """Return the first difference that no other one explains: kind, name and path."""
    causes = (
        " ".join(filter(None, (one.kind, one.name, one.path))) for one in found if not one.because
    )
    return next(causes, "")


@pytest.mark.parametrize("name", ROWS)
async def test_a_planted_fault_is_the_first_cause(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its very place; the ledger's state and the report's say the same of it."""
    row = ROWS[name]
    row.plant(monkeypatch)
    compared = await run(row.exchange)
    found = differences(compared.pair, compared.flow)
    assert first_cause(found.differences) == row.cause, found.differences
    assert found.equal == (row.cause.split()[0] in SLIGHT)
    assert equal_shadow(compared.served, compared.played) == found.equal


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
    assert first_cause(found.differences)


def test_the_rows_are_enough() -> None:
    """Every kind of difference, every flow, both stacks."""
    assert len(ROWS) >= 60
    assert {row.cause.split()[0] for row in ROWS.values()} == set(get_args(Kind))
    flows = {flow_of(name).name for name in ALL}
    assert {(flow_of(row.exchange).name, row.stack) for row in ROWS.values()} == {
        (flow, stack) for flow in flows for stack in ("legacy", "graph")
    }
