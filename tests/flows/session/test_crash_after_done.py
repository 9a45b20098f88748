"""A stack crashes once its answer is out: what is to be learnt is learnt all the same, once."""

from __future__ import annotations

import pytest

from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from router.stack import StackName
from tests.support.faulty_stacks import after, crash
from tests.support.router_world import House, Rules, house_with
from tests.support.session_turns import House as Stores
from tests.support.session_turns import learning

pytestmark = pytest.mark.virtual

FLOWS = {"legacy": LEGACY["session"], "graph": GRAPH["session"]}


@pytest.mark.parametrize("assigned", ["legacy", "graph"])
async def test_a_crash_after_done_costs_no_learning(assigned: StackName) -> None:
    """The other stack learns; the client has the whole stream, from one stack."""
    rules = Rules(assigned=assigned)
    stores = Stores()
    async with House(learning(stores), rules) as quiet:
        whole = (await quiet.ask()).wire
        number, calls = len(whole), quiet.world.made
    assert [entry.text for entry in stores.memory.entries] == ["likes quinces"]
    stores = Stores()
    crashing = after(FLOWS[assigned], number, crash)
    async with house_with(learning(stores), rules, crashing) as made:
        served = await made.ask()
        assert served.wire == whole
        assert served.comments == []
    assert [entry.text for entry in stores.memory.entries] == ["likes quinces"]
    assert made.world.made == calls
    assert [(run.role, run.outcome) for run in made.runs] == [
        ("serving", "failed"),
        ("fallback", "completed"),
    ]
