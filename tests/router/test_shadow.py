"""Which exchanges get a shadow, when it runs, and that each is accounted for once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutover import Event, Request, Stack, effect
from cutover.errors import Failed, Left
from cutover.records import RecordDamaged
from harness.root import equal_shadow
from router.driver import Candidate
from router.exchange import Served
from router.shadow import OVERHEAD_BYTES, QUEUE, TURN_SECONDS, IdleGate, Played, Shadows
from tests.support.ask import ASK, Ask, Done, Options, Said
from tests.support.served import Heard, ask
from tests.support.virtual_time import VirtualLoop

pytestmark = pytest.mark.virtual

Turn = Request[Ask, Options]


async def word(_: Turn) -> AsyncIterator[Event]:
    """Say a word."""
    yield Said("word")
    yield Done()


async def other_word(_: Turn) -> AsyncIterator[Event]:
    """Say another word."""
    yield Said("other")
    yield Done()


def mirror(**settings: Any) -> Shadows:
    """Return shadows on a host that is idle, whatever else it does."""
    return Shadows(equal_shadow, gate=IdleGate(starved=lambda: 0.0), **settings)


def slow(seconds: float, log: list[str] | None = None, name: str = "") -> Stack:
    """Return a stack that takes its time, and keeps in `log` when it begins and ends."""

    async def stack(_: Turn) -> AsyncIterator[Event]:
        (log if log is not None else []).append(f"{name} begins")
        await asyncio.sleep(seconds)
        (log if log is not None else []).append(f"{name} ends")
        yield Said("word")
        yield Done()

    return stack


def burns(seconds: float, times: int = 4) -> Stack:
    """Return a stack that computes on the loop, in several steps."""

    async def stack(_: Turn) -> AsyncIterator[Event]:
        for _step in range(times):
            stand_still(seconds)
            await asyncio.sleep(0)
        yield Said("word")
        yield Done()

    return stack


def stand_still(seconds: float) -> None:
    """Let time pass in which the loop does not turn."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.stand_still(seconds)


async def hangs(_: Turn) -> AsyncIterator[Event]:
    """Wait in a way that a router cannot tell from work."""
    while True:
        await asyncio.sleep(5)
        yield Said("word")


@asynccontextmanager
async def running(shadows: Shadows) -> AsyncIterator[None]:
    """Run shadows, until the block ends."""
    task = asyncio.create_task(shadows.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def heard() -> Heard:
    """Return an exchange that has ended."""
    return await ask(ASK, Ask("word"), word)


def here(stack: Stack = word, name: str = "graph") -> Candidate:
    """Return a stack of this process."""
    return Candidate(name, stack)


def there(stack: Stack = word) -> Candidate:
    """Return a service."""
    return Candidate("service", stack, remote=True)


@pytest.mark.parametrize(
    ("stack", "state"), [(word, "equal"), (other_word, "different"), (hangs, "failed")]
)
async def test_a_shadow_that_ran_is_equal_different_or_failed(stack: Stack, state: str) -> None:
    """What takes longer than it may is no difference."""
    shadows = mirror()
    async with running(shadows):
        shadows.offer((await heard()).served, here(stack))
        await shadows.settled()
    assert shadows.ledger == {state: 1}


async def test_a_shadow_that_cannot_be_compared_has_failed() -> None:
    """Its line cannot be read, say; the next one is compared."""
    compared: list[Served] = []

    def equal(served: Served, _: Played) -> bool:
        compared.append(served)
        if len(compared) == 1:
            raise RecordDamaged("half of a line")
        return True

    shadows = Shadows(equal, gate=IdleGate(starved=lambda: 0.0))
    async with running(shadows):
        for _ in range(2):
            shadows.offer((await heard()).served, here(word))
        await shadows.settled()
    assert shadows.ledger == {"failed": 1, "equal": 1}


def _left(served: Served) -> None:
    served.outcome = Left()


def _stopped(served: Served) -> None:
    served.outcome = Failed("server_stopped", "world")


@pytest.mark.parametrize(
    ("change", "candidate", "reason"),
    [
        (_left, here(), "client_left"),
        (_stopped, here(), "stopping"),
        (lambda served: served.runs.clear(), here(), "not_served"),
        (lambda served: served.tape.grow(1 << 30), here(), "overflowed"),
        (lambda _: None, replace(there(), shadow_safe=False), "unsafe"),
    ],
)
async def test_what_cannot_be_compared_is_dropped_with_its_reason(
    change: Callable[[Served], None], candidate: Candidate, reason: str
) -> None:
    """At once, and counted."""
    shadows, served = mirror(), (await heard()).served
    change(served)
    shadows.offer(served, candidate)
    assert (shadows.ledger, shadows.open) == ({reason: 1}, 0)


async def test_the_queue_is_bounded_by_number() -> None:
    """While nothing runs, no more than `QUEUE` wait."""
    shadows, served = mirror(), (await heard()).served
    for _ in range(QUEUE + 3):
        shadows.offer(served, here())
    assert (shadows.ledger, shadows.open) == ({"queue_full": 3}, QUEUE)
    async with running(shadows):
        await shadows.settled()
    assert shadows.ledger == {"queue_full": 3, "equal": QUEUE}


async def test_the_queue_is_bounded_by_what_it_holds() -> None:
    """Tapes count until their shadows have ended; then there is room again."""
    served = (await heard()).served
    served.tape.grow(1_000_000)
    shadows = mirror(queue_bytes=2 * (served.size + OVERHEAD_BYTES))
    for _ in range(3):
        shadows.offer(served, here())
    async with running(shadows):
        await shadows.settled()
        shadows.offer(served, here())
        await shadows.settled()
    assert shadows.ledger == {"queue_full": 1, "equal": 3}


async def test_a_day_has_so_many_shadows() -> None:
    """What is dropped for another reason does not count; the next day begins anew."""
    day = date(2026, 11, 28)
    shadows, served = mirror(requests_a_day=2, today=lambda: day), (await heard()).served
    shadows.offer(served, replace(here(), shadow_safe=False))
    for _ in range(3):
        shadows.offer(served, here())
    assert shadows.ledger == {"unsafe": 1, "daily_limit": 1}
    day += timedelta(days=1)
    shadows.offer(served, here())
    assert (shadows.open, shadows.offered) == (3, 5)


async def test_a_stopped_server_drops_what_waits_and_what_runs() -> None:
    """And what is offered later."""
    shadows, served = mirror(), (await heard()).served
    async with running(shadows):
        for stack in (word, hangs, word):
            shadows.offer(served, here(stack))
        await asyncio.sleep(1)
    shadows.offer(served, here())
    assert (shadows.ledger, shadows.open) == ({"equal": 1, "stopping": 3}, 0)


async def test_a_stack_that_computes_on_the_loop_is_shed_and_rests(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """For a minute, and the log says so; other stacks have their shadows meanwhile."""
    shadows, served = mirror(), (await heard()).served
    async with running(shadows):
        shadows.offer(served, here(burns(0.3)))
        await shadows.settled()
        assert shadows.ledger == {"loop_busy": 1}
        assert "shadow=graph kept the loop busy: delay_ms=" in caplog.text
        shadows.offer(served, here())
        shadows.offer(served, here(name="legacy"))
        await shadows.settled()
        assert shadows.ledger == {"loop_busy": 2, "equal": 1}
        await asyncio.sleep(60)
        shadows.offer(served, here())
        await shadows.settled()
    assert shadows.ledger == {"loop_busy": 2, "equal": 2}


async def test_a_stack_that_computes_in_its_last_step_rests_too() -> None:
    """Its shadow is whole, and compared."""
    shadows, served = mirror(), (await heard()).served
    async with running(shadows):
        shadows.offer(served, here(burns(0.6, times=1)))
        await shadows.settled()
        shadows.offer(served, here())
        await shadows.settled()
    assert shadows.ledger.total() == 2
    assert shadows.ledger["loop_busy"] >= 1


async def test_a_stack_that_computes_in_many_steps_is_shed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each of which would be none too long; nothing else is logged."""
    shadows, served = mirror(), (await heard()).served
    async with running(shadows):
        shadows.offer(served, here(burns(0.02, times=100)))
        await shadows.settled()
    assert shadows.ledger == {"loop_busy": 1}
    assert [one.levelname for one in caplog.records] == ["WARNING"]


async def test_a_stack_is_not_to_blame_for_a_busy_host() -> None:
    """Timers come late, and the thread has waited for a processor meanwhile."""
    shadows, served = mirror(), (await heard()).served
    shadows.gate.starved = asyncio.get_running_loop().time
    async with running(shadows):
        shadows.offer(served, here(burns(0.3)))
        await shadows.settled()
    assert shadows.ledger == {"equal": 1}


async def test_small_steps_are_no_burden() -> None:
    """A graph computes for some milliseconds between its waits."""
    shadows, served = mirror(), (await heard()).served
    async with running(shadows):
        shadows.offer(served, here(burns(0.004, times=200)))
        await shadows.settled()
    assert shadows.ledger == {"equal": 1}


async def test_shadows_wait_until_the_loop_is_idle() -> None:
    """While streams keep it busy none begins; one that has waited long enough is dropped."""
    shadows, served = mirror(), (await heard()).served
    log: list[str] = []

    async def streams(seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until:
            stand_still(0.03)
            await asyncio.sleep(0.001)

    async with running(shadows):
        for seconds, state in ((5.0, "equal"), (12.0, "loop_busy")):
            busy = asyncio.create_task(streams(seconds))
            await asyncio.sleep(0.2)
            shadows.offer(served, here(slow(0.0, log, state)))
            await asyncio.sleep(seconds / 2)
            assert f"{state} begins" not in log
            await busy
            await shadows.settled()
            assert shadows.ledger[state] == 1  # type: ignore[index] # a state's name


async def test_a_shadow_lets_clients_go_first() -> None:
    """Before each call, as long as one waits for its first text; but not for ever."""

    @effect("step")
    async def step(number: int) -> int:
        return number

    async def asks(_: Turn) -> AsyncIterator[Event]:
        for number in range(3):
            await step(number)
        yield Said("word")
        yield Done()

    shadows, hurried = mirror(), True
    shadows.gate.hurried = lambda: hurried
    loop = asyncio.get_running_loop()
    async with running(shadows):
        began = loop.time()
        shadows.offer((await ask(ASK, Ask("word"), asks)).served, here(asks))
        await shadows.settled()
        assert 3 * TURN_SECONDS <= loop.time() - began < 4 * TURN_SECONDS
        hurried, began = False, loop.time()
        shadows.offer((await ask(ASK, Ask("word"), asks)).served, here(asks))
        await shadows.settled()
        assert loop.time() - began < TURN_SECONDS
    assert shadows.ledger == {"equal": 2}


async def test_services_are_played_side_by_side_and_not_behind_stacks_of_this_process() -> None:
    """Nor do they wait for an idle loop."""
    shadows, served = mirror(), (await heard()).served
    async with running(shadows):
        shadows.offer(served, here(slow(5.0)))
        for _ in range(4):
            shadows.offer(served, there(slow(1.0)))
        await asyncio.sleep(1.5)
        assert (shadows.ledger, shadows.open) == ({"equal": 4}, 1)
        await shadows.settled()


async def test_a_conversation_is_played_in_the_order_of_its_turns() -> None:
    """Whichever stack plays a turn; other conversations do not wait for it."""
    shadows, served = mirror(), (await heard()).served
    log: list[str] = []
    async with running(shadows):
        for name, candidate, conversation in (
            ("1", there(slow(3.0, log, "1")), "c"),
            ("2", here(slow(0.1, log, "2")), "c"),
            ("3", there(slow(0.1, log, "3")), "c"),
            ("x", there(slow(0.1, log, "x")), "d"),
            ("y", here(slow(0.1, log, "y")), ""),
        ):
            shadows.offer(served, candidate, conversation=conversation)
            del name
        await shadows.settled()
    turns = [one for one in log if one[0] in "123"]
    assert turns == [f"{name} {what}" for name in "123" for what in ("begins", "ends")]
    assert log.index("x ends") < log.index("1 ends")
    assert log.index("y ends") < log.index("1 ends")


KINDS: dict[str, Stack] = {
    "equal": word,
    "different": other_word,
    "slow": slow(0.7),
    "burns": burns(0.3),
    "hangs": hangs,
}


async def _breaks(_: Turn) -> AsyncIterator[Event]:
    yield Said("word")
    raise ZeroDivisionError


KINDS["breaks"] = _breaks

STATES: set[str] = {
    *("equal", "different", "failed", "loop_busy"),
    *("client_left", "daily_limit", "queue_full", "stopping"),
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(KINDS)), st.booleans(), st.sampled_from(("", "c", "d"))),
        st.sampled_from((0.0, 0.03, 1.0, 70.0, "left", "full", "stands still")),
    ),
    max_size=25,
)


@pytest.mark.slow
@given(steps=STEPS, a_day=st.sampled_from((None, 3)), runs=st.booleans())
def test_each_exchange_that_is_offered_ends_in_one_state(
    *, steps: list[Any], a_day: int | None, runs: bool
) -> None:
    """Whatever arrives, fails, and is cancelled: what is counted and what is open are all."""

    async def example() -> None:
        shadows = mirror(requests_a_day=a_day, queue_bytes=10 * OVERHEAD_BYTES)
        served = (await heard()).served
        task = asyncio.create_task(shadows.run()) if runs else None
        for step in steps:
            match step:
                case (str(kind), bool(remote), str(conversation)):
                    candidate = Candidate(kind, KINDS[kind], remote=remote)
                    shadows.offer(served, candidate, conversation=conversation)
                case "left":
                    shadows.offer(replace(served, outcome=Left()), here())
                case "full":
                    for _ in range(12):
                        shadows.offer(served, here())
                case "stands still":
                    stand_still(0.5)
                case seconds:
                    await asyncio.sleep(seconds)
            assert shadows.ledger.total() + shadows.open == shadows.offered
            assert shadows.open <= 10
        task = task or asyncio.create_task(shadows.run())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        assert shadows.open == shadows._held == 0  # noqa: SLF001 - what is held is let go
        assert shadows.ledger.total() == shadows.offered
        assert set(shadows.ledger) <= STATES

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(example())
