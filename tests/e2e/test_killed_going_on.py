"""Routers that are killed while they go on from an approved pause: no tool runs twice.

`CUTOVER_KILLS=500` kills that many; `python -m benchmarks journal` does, too.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks.journal import STACKS, kill_in_a_tool, kills
from router.stack import StackName
from tests.support.postgres import PLACES, empty_place

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.untraced]

KILLS = int(os.environ.get("CUTOVER_KILLS", "4"))


@pytest.fixture(params=PLACES)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Return the address of the stores."""
    async with empty_place(request, tmp_path) as address:
        yield address


async def test_no_kill_runs_a_tool_twice(place: str) -> None:
    """Whenever it comes: each outcome is told, as it was or as unknown, and the reply stored."""
    found = await kills(place, KILLS)
    assert [(kill, *kill.faults) for kill in found if any(kill.faults)] == []


@pytest.mark.parametrize("stack", STACKS)
async def test_a_tool_that_was_running_is_not_run_again(
    place: str, tmp_path: Path, stack: StackName
) -> None:
    """User, model and audit are told that its outcome is unknown; the exchange goes on."""
    then = STACKS[1 - STACKS.index(stack)]
    kill = await kill_in_a_tool(place, tmp_path, stack, then)
    assert list(kill.faults) == []
    assert kill.runs["pay_a"] == 1
    assert (kill.then["pay_a"], kill.then["pay_c"]) == ("outcome_unknown", "ok")
    assert "pay_a" in kill.reported
    assert (kill.ends["pay_a"], kill.ends["pay_c"]) == (0, 1)
