"""The breaker: what opens it, what closes it, and what says nothing."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from cutover.errors import Completed, Failed, Left, Outcome, Refusal
from harness.config import BreakerTable
from router.breaker import Breaker, BreakerSettings
from tests.support.virtual_time import VirtualLoop

pytestmark = pytest.mark.virtual

SHIPPED = BreakerSettings(**BreakerTable().model_dump())
BLAMED = Failed("stack_failed", "stack")
FINE = Completed()


async def opened() -> Breaker:
    """Return a breaker that twenty failures have opened."""
    breaker = Breaker(SHIPPED)
    for _ in range(20):
        assert breaker.allows()
        breaker.record(BLAMED)
    assert not breaker.allows()
    return breaker


@pytest.mark.parametrize(
    ("ended", "state"),
    [
        ([BLAMED] * 19, "closed"),
        ([BLAMED] * 20, "open"),
        ([FINE, BLAMED] * 10, "open"),
        ([FINE, FINE, BLAMED] * 20, "closed"),
        ([Failed("model_error", "world")] * 100, "closed"),
        ([Failed("no_key", "configuration")] * 100, "closed"),
        ([Left()] * 100, "closed"),
        ([Refusal(404, "unknown_message")] * 20 + [BLAMED] * 19, "closed"),
    ],
)
async def test_what_the_stack_is_to_blame_for_opens_it(ended: list[Outcome], state: str) -> None:
    """At half of at least twenty runs."""
    breaker = Breaker(SHIPPED)
    for one in ended:
        breaker.record(one)
    assert breaker.state == state


async def test_failures_of_long_ago_do_not_count() -> None:
    """The window is a minute."""
    breaker = Breaker(SHIPPED)
    for _ in range(40):
        breaker.record(BLAMED)
        await asyncio.sleep(3.2)
    assert breaker.state == "closed"


@pytest.mark.parametrize(("ends", "state"), [(FINE, "closed"), (BLAMED, "open")])
async def test_after_its_rest_one_run_tries(ends: Outcome, state: str) -> None:
    """And its end decides; a client that leaves it lets another one try."""
    breaker = await opened()
    await asyncio.sleep(29.9)
    breaker.record(FINE)  # it began before
    assert not breaker.allows()
    await asyncio.sleep(0.2)
    assert [breaker.allows() for _ in range(3)] == [True, False, False]
    breaker.record(Left())
    assert [breaker.allows() for _ in range(3)] == [True, False, False]
    breaker.record(ends)
    assert breaker.state == state


async def test_a_run_that_tries_and_never_ends_locks_nothing() -> None:
    """Another one tries after a further rest."""
    breaker = await opened()
    for _ in range(3):
        await asyncio.sleep(30.1)
        assert [breaker.allows() for _ in range(2)] == [True, False]
    breaker.record(FINE)
    assert breaker.state == "closed"


STEPS = st.lists(st.sampled_from([BLAMED, FINE, Left(), "allows", 1.0, 31.0]), max_size=80)


@given(STEPS)
def test_it_never_stays_open(steps: list[Outcome | str | float]) -> None:
    """Whatever happened, after one rest without an end a run may begin, and closes it."""

    async def play() -> None:
        breaker = Breaker(structs.replace(SHIPPED, runs=3))
        for step in steps:
            if isinstance(step, float):
                await asyncio.sleep(step)
            elif step == "allows":
                breaker.allows()
            else:
                assert not isinstance(step, str)
                breaker.record(step)
        await asyncio.sleep(31.0)
        if not breaker.allows():
            breaker.record(Left())  # the run that tries is left
            assert breaker.allows()
        breaker.record(FINE)
        assert breaker.state == "closed"

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(play())
