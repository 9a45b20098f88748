"""News between routers: in the background, and what holds while the board is away."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from contract.errors import EffectFailed, Fault
from effects.stores import BreakerNote, MemorySharedState, NoteUpdate, Spending
from router.config.schema import BreakerSettings, Settings, ShadowSettings
from router.routing.breakers import Breakers
from router.shadow.budget import ShadowBudget
from router.state_sync import INTERVAL_SECONDS, TIMEOUT_SECONDS, StateSync
from tests.support.clocks import now
from tests.support.faulty_stacks import after, crash
from tests.support.router_world import House, Served
from tests.support.tool_replies import CASE, FLOWS, both

pytestmark = pytest.mark.virtual

RULES = BreakerSettings(least_requests=2, open_seconds=10.0, probes=1)
SETTINGS = Settings(breaker=RULES)
WALL = 1_790_000_000.0
SOON = 1.5 * INTERVAL_SECONDS
MEANWHILE = "breakers and the shadow's budget are this router's own"


class Wall:
    """A board that may be away, or never answer."""

    def __init__(self) -> None:
        self.board = MemorySharedState(now)
        self.broken: Exception | None = None
        self.delay = 0.0
        self.asked = 0

    async def update_notes(self, posts: Sequence[NoteUpdate]) -> Mapping[str, BreakerNote]:
        """Put up what is as expected."""
        self.asked += 1
        await self._trouble()
        return await self.board.update_notes(posts)

    async def report_spending(self, day: int, who: str, own: Spending) -> Spending:
        """Add up."""
        await self._trouble()
        return await self.board.report_spending(day, who, own)

    async def aclose(self) -> None:
        """Nothing is open."""

    async def _trouble(self) -> None:
        await asyncio.sleep(self.delay)
        if self.broken is not None:
            raise self.broken


@dataclass
class Purse:
    """A budget whose router spends what a test says."""

    budget: ShadowBudget
    news: StateSync

    @classmethod
    def at(cls, wall: Wall, limits: ShadowSettings, clock: Sequence[float]) -> Purse:
        """Make one that looks at a board."""
        budget = ShadowBudget(lambda: limits, lambda *_: None, lambda: clock[0])
        breakers = Breakers(lambda: SETTINGS, now)
        return cls(budget, StateSync(wall, breakers, budget, lambda: ("chat",)))


def exhausted(*purses: Purse) -> list[bool]:
    """Return the flows whose shadows may not begin."""
    return [purse.budget.exhausted for purse in purses]


async def test_one_budget_for_all() -> None:
    """What other routers have spent counts after an exchange; tomorrow starts at zero."""
    wall, clock, limits = Wall(), [WALL], ShadowSettings(tokens_per_day=10, cost_per_day=9.0)
    one, two = (Purse.at(wall, limits, clock) for _ in range(2))
    assert exhausted(one, two) == [False, False]
    one.budget.tokens, one.budget.cost = 6, 4.0
    two.budget.tokens, two.budget.cost = 4, 4.0
    for purse in (one, two, one):
        await purse.news.exchange()
    assert exhausted(one, two) == [True, True]
    assert (one.budget.tokens, two.budget.tokens) == (6, 4), "each counts its own as ever"
    clock[0] += 86_400
    assert exhausted(one, two) == [False, False]
    await one.news.exchange()
    assert exhausted(one) == [False]


async def test_requests_are_added_up_too() -> None:
    """Those that have begun anywhere."""
    wall, clock, limits = Wall(), [WALL], ShadowSettings(requests_per_day=3)
    one, two = (Purse.at(wall, limits, clock) for _ in range(2))
    for purse in (one, two, two):
        purse.budget.count_request()
    for purse in (one, two):
        await purse.news.exchange()
    assert exhausted(one, two) == [False, True]
    clock[0] += 86_400
    assert exhausted(two) == [False]


async def test_money_is_added_up_too() -> None:
    """In the currency of the models' prices."""
    wall, clock, limits = Wall(), [WALL], ShadowSettings(cost_per_day=1.0)
    one, two = (Purse.at(wall, limits, clock) for _ in range(2))
    exhausted(one, two)  # the day begins
    one.budget.cost, two.budget.cost = 0.75, 0.25
    for purse in (one, two):
        await purse.news.exchange()
    assert exhausted(one, two) == [False, True]


async def test_without_a_limit_nothing_is_counted_together() -> None:
    """The board has one question less to answer."""
    wall = Wall()
    purse = Purse.at(wall, ShadowSettings(), [WALL])
    await purse.news.exchange()
    assert await wall.board.report_spending(int(WALL // 86_400), "x", Spending(1)) == Spending(1)


async def test_a_board_that_is_away_is_told_and_what_is_known_holds() -> None:
    """The others' last known sum, one's own in full; then it is told all at once."""
    wall, clock, limits = Wall(), [WALL], ShadowSettings(tokens_per_day=10)
    one, two = (Purse.at(wall, limits, clock) for _ in range(2))
    exhausted(one, two)  # the day begins
    one.budget.tokens = 6
    for purse in (one, two):
        await purse.news.exchange()
    wall.broken = EffectFailed(Fault("store_unavailable"))
    two.budget.tokens = 4
    for _ in range(2):
        await two.news.exchange()
        assert two.news.fault == f"store_unavailable; {MEANWHILE}"
    assert exhausted(two) == [True]
    wall.broken = None
    for purse in (two, one):
        await purse.news.exchange()
        assert purse.news.fault is None
    assert exhausted(one) == [True]


async def test_one_that_never_answers_is_away() -> None:
    """So is one that raises anything unexpected; each router goes on alone."""
    wall = Wall()
    breakers = Breakers(lambda: SETTINGS, now)
    budget = ShadowBudget(ShadowSettings, lambda *_: None, lambda: WALL)
    news = StateSync(wall, breakers, budget, lambda: ("chat",))
    alone = [breakers.alone]
    await news.exchange()
    alone.append(breakers.alone)
    wall.delay = 3_600.0
    await news.exchange()
    assert [*alone, breakers.alone] == [True, False, True]
    assert news.fault == f"no answer within {TIMEOUT_SECONDS:g} s; {MEANWHILE}"
    wall.delay, wall.broken = 0.0, ZeroDivisionError()
    await news.exchange()
    assert news.fault == f"ZeroDivisionError; {MEANWHILE}"


async def test_it_is_looked_at_each_second_and_not_more_often_while_it_is_away() -> None:
    """Whatever a router has to tell."""
    wall = Wall()
    breakers = Breakers(lambda: SETTINGS, now)
    budget = ShadowBudget(ShadowSettings, lambda *_: None, lambda: WALL)
    async with StateSync(wall, breakers, budget, lambda: ("chat",)).running():
        await asyncio.sleep(10 * INTERVAL_SECONDS + 0.5)
        assert wall.asked == 11
        breakers.on_change()
        await asyncio.sleep(0.1)
        assert wall.asked == 12, "news are told at once"
        wall.broken = EffectFailed(Fault("store_unavailable"))
        await asyncio.sleep(2 * INTERVAL_SECONDS)
        wall.asked = 0
        for _ in range(100):
            breakers.on_change()
            await asyncio.sleep(INTERVAL_SECONDS / 10)
        assert wall.asked == 10


def house(crashing: list[bool]) -> House:
    """Build a router whose graph crashes while the first of `crashing` says so."""

    def graph(*given: Any) -> Any:
        flow = after(FLOWS["graph"], 4, crash) if crashing[0] else FLOWS["graph"]
        return flow(*given)

    made = both("graph", graph, FLOWS["legacy"])
    made.settings = made.settings.model_copy(update={"breaker": RULES})
    return made


def news_of(made: House, wall: Wall) -> StateSync:
    """Have a router look at a board."""
    admission, flows = made.router.admission, made.router.flows
    return StateSync(wall, admission.breakers, made.router.shadows.budget, lambda: flows)


async def ask(made: House, number: int) -> Served:
    """Ask a router once."""
    return await made.ask(msgspec.structs.replace(CASE.body, message_id=f"m{number}"))


def by(served: Served) -> str:
    """Return the stack that served."""
    return served.stream.served_by.name


async def test_two_routers_spare_probe_and_trust_together() -> None:
    """One sees the failures, both spare; one probes, both trust; a reset reaches both."""
    crashing, wall = [True], Wall()
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(house(crashing)) for _ in range(2)]
        for made in (one, two):
            await stack.enter_async_context(news_of(made, wall).running())
        for number in range(2):
            assert by(await ask(one, number)) == "legacy", "taken over"
        await asyncio.sleep(SOON)
        assert by(await ask(two, 2)) == "legacy"
        assert two.router.counts.takeovers == 0
        assert two.router.counts.bypassed == 1
        assert two.router.admission.breakers.of("chat", "graph").reported
        crashing[0] = False
        await asyncio.sleep(10.0)
        assert by(await ask(two, 3)) == "legacy", "it asks for leave first"
        await asyncio.sleep(SOON)
        assert by(await ask(one, 4)) == "legacy"
        assert by(await ask(two, 5)) == "graph"
        await asyncio.sleep(SOON)
        assert by(await ask(one, 6)) == "graph"
        crashing[0] = True
        for number in (7, 8):
            await ask(two, number)
        await asyncio.sleep(SOON)
        assert states(one) == states(two) == {"graph": "open"}
        assert one.router.admission.breakers.reset("chat", "graph") == "open"
        await asyncio.sleep(SOON)
        assert states(one) == states(two) == {"graph": "closed"}


async def test_without_the_board_each_router_finds_out_by_itself() -> None:
    """As without a shared state: no probe waits for a claim."""
    crashing, wall = [True], Wall()
    async with house(crashing) as made, news_of(made, wall).running():
        await asyncio.sleep(SOON)
        for number in range(2):
            await ask(made, number)
        wall.broken = EffectFailed(Fault("store_unavailable"))
        crashing[0] = False
        await asyncio.sleep(10.0)
        assert by(await ask(made, 2)) == "graph"
        assert states(made) == {"graph": "closed"}


async def test_news_of_flows_one_does_not_have_are_passed_over() -> None:
    """Nor does what is no stack's name make a breaker, nor anything while they are switched off."""
    wall, settings = Wall(), [SETTINGS]
    breakers = Breakers(lambda: settings[0], now)
    budget = ShadowBudget(ShadowSettings, lambda *_: None, lambda: WALL)
    news = StateSync(wall, breakers, budget, lambda: ("chat",))
    keys = ("graph:other", "new:chat", "chat", "graph:chat")
    await wall.update_notes(
        [NoteUpdate(key, BreakerNote(f"x:{key}", "open", 60.0)) for key in keys]
    )
    settings[0] = Settings(breaker=BreakerSettings(enabled=False))
    await news.exchange()
    assert list(breakers.states()) == []
    settings[0] = SETTINGS
    await news.exchange()
    assert list(breakers.states()) == [("chat", "graph", "open")]


def states(made: House) -> dict[str, str]:
    """Return the state of graph's breaker."""
    breakers = made.router.admission.breakers
    return {stack: state for _, stack, state in breakers.states() if stack == "graph"}
