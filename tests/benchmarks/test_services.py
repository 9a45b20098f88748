"""Services that order, killed once in every way there is: the bench's own harness, for a minute."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.services.examples import Name
from benchmarks.services.interrupted import PAIRINGS, Strikes, interrupted, rows_of
from tests.support.assistants import needs_node

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.untraced]


@pytest.mark.parametrize(("legacy", "graph"), PAIRINGS)
async def test_no_order_is_placed_twice_or_untold(
    legacy: Name, graph: Name, tmp_path: Path
) -> None:
    """And no stream ends without a word, whichever process dies under it."""
    needs_node(legacy)
    strikes = Strikes(rounds=1, at_once=6, apart=20)
    found = await interrupted(tmp_path, legacy, graph, strikes)
    assert found.rows
    assert found.endings["cut"]
    assert [found.twice, found.untold, found.made_up] == [[], [], []]
    assert [found.silent, found.torn] == [[], []]
    assert all(row.ok in {None, True} for row in rows_of("services", found, strikes))
