"""What shadows may spend: past it they are dropped, and tomorrow they begin again."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from cutover.wiring.router import assemble_router
from router.admin.pages import flows_page
from router.config.schema import ShadowSettings
from router.serving.stack import LocalStack
from router.shadow.budget import ShadowBudget
from router.stack import Powers
from tests.support.router_world import House, Rules
from tests.support.tool_replies import CASE, FLOWS

pytestmark = pytest.mark.virtual

DAY = 86_400
POWERS = Powers(taped=False, shadows=True, takes_over=False)


def elsewhere(**shadow: Any) -> House:
    """Build a house whose shadows cannot be seen; the tape knows 3 tokens, for 0.5 in money."""
    made = limited(House(CASE, Rules(shadow=100), price=lambda *_: 0.5), **shadow)
    graph = LocalStack("graph", {"chat": FLOWS["graph"]}, "g1", powers=POWERS)
    stacks = {**made.router.stacks, "graph": graph}
    made.router = assemble_router(**(made.parts | {"stacks": stacks}))
    return made


def limited(made: House, **shadow: Any) -> House:
    """Set limits of a house of its shadows."""
    made.settings = made.settings.model_copy(update={"shadow": ShadowSettings(**shadow)})
    return made


async def ask(made: House, times: int) -> None:
    """Ask so often, and wait for each shadow."""
    for number in range(times):
        await made.ask(msgspec.structs.replace(CASE.body, message_id=f"m{number}"))
        await asyncio.sleep(100.0)


@pytest.mark.parametrize("limit", [{"tokens_per_day": 4}, {"cost_per_day": 0.75}])
async def test_past_the_budget_shadows_are_dropped(limit: dict[str, Any]) -> None:
    """What the tape holds is what a shadow elsewhere is taken to ask; the users notice nothing."""
    async with elsewhere(**limit) as made:
        await ask(made, 4)
        assert made.states == {"compared(equal)": 2, "dropped(budget)": 2}
        budget = made.router.shadows.budget
        assert (budget.tokens, budget.cost, budget.exhausted) == (6, 1.0, True)
        assert {run.outcome for run in made.runs} == {"completed"}
        limited(made, tokens_per_day=100)
        await ask(made, 1)
        assert made.states["compared(equal)"] == 3


async def test_requests_count_when_they_begin_and_by_their_results() -> None:
    """Those to services; past the limit none is sent, and each that was is counted once."""
    async with elsewhere(requests_per_day=2) as made:
        await ask(made, 4)
        shadows = made.router.shadows
        assert made.states == {"compared(equal)": 2, "dropped(budget)": 2}
        assert (shadows.budget.requests, shadows.budget.exhausted) == (2, True)
        assert shadows.requests == {("chat", "graph", "completed"): 2}


async def test_what_was_spent_today_is_shown_as_such() -> None:
    """Also after midnight, before any other shadow begins."""
    wall = 1_790_000_000.0
    async with elsewhere(requests_per_day=2) as made:
        parts = made.parts | {"stacks": made.router.stacks, "wall": lambda: wall}
        made.router = assemble_router(**parts)
        await ask(made, 1)
        assert flows_page(made.router, None).shadow["requests_today"] == 1
        wall += DAY
        assert flows_page(made.router, None).shadow["requests_today"] == 0


async def test_shadows_that_tail_count_before_they_have_ended() -> None:
    """The second one of two at once finds the budget used up."""
    async with elsewhere(mode="tail", requests_per_day=1) as made:
        streams = [await made.router.open(CASE.spec, CASE.body) for _ in range(2)]
        assert made.router.shadows.budget.requests == 1
        for stream in streams:
            made.router.close(stream)
            await made.contexts.settled_in(made.router, stream.context.exchange)
        assert sum(made.router.shadows.requests.values()) == 1


async def test_shadows_on_the_tape_spend_nothing() -> None:
    """The model is not asked again, so nothing is counted."""
    async with limited(House(CASE, Rules(shadow=100)), tokens_per_day=1) as made:
        await ask(made, 3)
        assert made.states == {"compared(equal)": 3}
        budget = made.router.shadows.budget
        assert (budget.tokens, budget.requests) == (0, 0)
        assert not made.router.shadows.requests


@pytest.mark.parametrize("budget", [1, 0])
async def test_one_that_tails_is_dropped_too(budget: int) -> None:
    """It does not begin beside the serving run either."""
    async with elsewhere(mode="tail", tokens_per_day=budget) as made:
        await ask(made, 2)
        expected = {"compared(equal)": 1, "dropped(budget)": 1}
        assert made.states == (expected if budget else {"compared(equal)": 2})


async def test_own_calls_count_and_tomorrow_is_another_day() -> None:
    """A run that asks the model itself pays for what it asked; days change at midnight, UTC."""
    now = 1_790_000_000.0
    limits = ShadowSettings(tokens_per_day=3)
    budget = ShadowBudget(lambda: limits, lambda *_: None, lambda: now)
    async with House(CASE) as made:
        serving = (await made.ask()).stream
    assert not budget.exhausted
    budget.charge(serving.exchange.tape, serving.run, taped=True)
    assert (budget.tokens, budget.cost) == (3, 0.0)
    told = []
    for second in (DAY - 1, DAY):
        now += second - now % DAY
        told.append((budget.exhausted, budget.tokens))
    assert told == [(True, 3), (False, 0)]


async def test_a_clock_that_jumps_gives_no_second_budget() -> None:
    """A day that the clock comes back to goes on with what was spent in it."""
    now = 1_790_000_000.0
    limits = ShadowSettings(requests_per_day=2)
    budget = ShadowBudget(lambda: limits, lambda *_: None, lambda: now)
    budget.count_request()
    budget.count_request()
    found = []
    for days in (400, -400, -1, 1):
        now += days * DAY
        found.append((budget.exhausted, budget.spent()[1].requests))
    assert found == [(False, 0), (True, 2), (False, 0), (True, 2)]
