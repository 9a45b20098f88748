"""Takeover on drawn requests: every switch and accident of the flow, broken at a drawn place."""

from __future__ import annotations

from random import Random

import pytest

from contract.flows.chat import CHAT
from contract.grammar import GrammarCheck
from cutover.selftest.cases import case
from router.stack import StackName
from tests.support.faulty_stacks import Act, after, crash, hang
from tests.support.flow_runs import Case
from tests.support.router_world import House, Rules, Served, house_with
from tests.support.tool_replies import FLOWS

pytestmark = [pytest.mark.virtual, pytest.mark.slow]

SEEDS = 100
PER_TEST = 20
ORDER: list[StackName] = ["legacy", "graph"]


async def served(drawn: Case, assigned: StackName, events: int, act: Act) -> tuple[House, Served]:
    """Serve a case whose assigned stack breaks after so many events."""
    faulty = after(FLOWS[assigned], events, act)
    rules = Rules(assigned=assigned, stall_seconds=100.0)
    async with house_with(drawn, rules, faulty) as house:
        return house, await house.ask()


def grammatical(one: Served) -> bool:
    """Whether the client's stream keeps the grammar from its first frame to its last."""
    check = GrammarCheck(CHAT.grammar)
    for frame in one.wire:
        check.event(frame.split(b'"')[3].decode())
    return check.complete


@pytest.mark.untraced
@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
async def test_a_break_anywhere_is_made_good(first: int) -> None:
    """The same world beside one whose stack crashes or hangs at a drawn place."""
    for seed in range(first, first + PER_TEST):
        drawn, assigned = case(seed), ORDER[seed % 2]
        quiet, whole = await served(drawn, assigned, -1, crash)
        events = Random(seed).randrange(len(whole.wire) + 1)
        made, crashed = await served(drawn, assigned, events, crash)
        assert made.world.made == quiet.world.made
        changes_nothing(crashed, whole)
        assert len(crashed.comments) == (0 < events < len(whole.wire))
        made, hung = await served(drawn, assigned, events, hang)
        assert made.world.made == quiet.world.made
        costs_time_only(hung, whole, events)


def changes_nothing(broken: Served, whole: Served) -> None:
    """Check a crash: same bytes or same refusal."""
    assert (broken.status, broken.code) == (whole.status, whole.code)
    assert broken.wire == whole.wire


def costs_time_only(broken: Served, whole: Served, events: int) -> None:
    """Check a hang: later pieces come later, so they may be cut elsewhere; the reply is equal."""
    assert (broken.status, broken.code) == (whole.status, whole.code)
    assert broken.wire[:events] == whole.wire[:events]
    assert broken.wire[-2:] == whole.wire[-2:]
    assert not broken.wire or grammatical(broken)
