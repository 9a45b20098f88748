"""The shadow: it runs on the tape, and nothing it does is ever noticed by a client."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Literal

import msgspec
import pytest

from contract.flow import Event
from contract.flows.chat import CHAT, ModelOverrides, Send
from contract.model import Usage
from contract.ports import Effects
from contract.records import RunRecord, decode_run, encode_run
from cutover.selftest.cases import case
from router.stack import StackName
from tests.support.collector import without_collector
from tests.support.faulty_stacks import (
    Act,
    Sleeper,
    Tripwire,
    after,
    cancelled,
    crash,
    dawdle,
    hang,
    mapped,
    short,
)
from tests.support.router_world import House, Rules, Served, each
from tests.support.tool_replies import ASSIGNED, CASE, FLOWS, both, other, shouted

pytestmark = pytest.mark.virtual

Mode = Literal["replay", "tail"]
MODES: list[Mode] = ["replay", "tail"]


async def shadowed(assigned: StackName, mode: Mode, shadow: object = None) -> tuple[House, Served]:
    """Serve once with a shadow; all is settled and written when this returns."""
    stand_in = FLOWS[other(assigned)] if shadow is None else shadow
    async with both(assigned, FLOWS[assigned], stand_in, shadow=100, mode=mode) as made:
        served = await made.ask()
    return made, served


async def alone(assigned: StackName) -> Served:
    """Serve once without a shadow."""
    async with both(assigned, FLOWS[assigned], FLOWS[other(assigned)]) as made:
        return await made.ask()


@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize("mode", MODES)
async def test_a_sound_candidate_is_compared_and_equal(assigned: StackName, mode: Mode) -> None:
    """Same frames, every call exact, every entry played."""
    made, served = await shadowed(assigned, mode)
    assert made.states == {"compared(equal)": 1}
    serving, shadow = made.runs
    assert (serving.role, serving.stack) == ("serving", assigned)
    assert (shadow.role, shadow.stack) == ("shadow", other(assigned))
    assert [text for _, text in shadow.frames] == [text for _, text in serving.frames]
    assert [text.encode() for _, text in serving.frames] == served.wire
    assert {play.how for play in serving.plays} == {"live"}
    assert {play.how for play in shadow.plays} == {"exact"}
    assert serving.tape is not None
    assert [play.entry for play in shadow.plays] == [entry.seq for entry in serving.tape]


@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize("mode", MODES)
async def test_a_shadow_does_nothing_to_the_world(assigned: StackName, mode: Mode) -> None:
    """No second model call, no second tool, no second write."""
    made, _ = await shadowed(assigned, mode)
    silent, _ = await shadowed(assigned, mode, short(FLOWS[other(assigned)], 0))
    assert made.world.made == silent.world.made
    assert made.world.count("model.stream") == 2
    assert sorted(made.world.tools.called) == ["calc", "dice"]


async def crowd(made: House, clients: int) -> None:
    """Let so many ask at the same moment."""
    bodies = [msgspec.structs.replace(CASE.body, message_id=f"m{n}") for n in range(clients)]
    await asyncio.gather(*(made.client(body) for body in bodies))


TROUBLES: dict[str, Act] = {
    "crash": crash,
    "cancelled": cancelled,
    "hang": hang,
    "late": Sleeper(70.0),
    "slow": dawdle(3.0),
}


@pytest.mark.untraced
@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_no_trouble_of_a_shadow_reaches_the_client(
    assigned: StackName, mode: Mode, trouble: str
) -> None:
    """Frames and their moments are those without a shadow; the candidate is compared."""
    quiet = await alone(assigned)
    for events in (0, 1, 4, 9, 14):
        start = asyncio.get_running_loop().time()
        broken = after(FLOWS[other(assigned)], events, TROUBLES[trouble])
        made, served = await shadowed(assigned, mode, broken)
        assert [data for _, data in served.frames] == [data for _, data in quiet.frames]
        moments = [at for at, _ in quiet.frames]
        assert [at - start for at, _ in served.frames] == pytest.approx(moments)
        assert list(made.states) == [f"compared({'equal' if trouble == 'slow' else 'different'})"]
        outcome = {"crash": "failed", "cancelled": "failed", "slow": "completed"}
        assert made.runs[1].outcome == outcome.get(trouble, "timeout")
        if trouble == "late":
            await asyncio.sleep(90.0)


@pytest.mark.parametrize("mode", MODES)
async def test_a_shadow_slow_at_every_call_is_equal(mode: Mode) -> None:
    """It takes its time, behind everybody's back; ten times that of the serving stack."""
    quiet = await alone("legacy")
    start = asyncio.get_running_loop().time()
    made, served = await shadowed("legacy", mode, Lagging(4.0).flow(FLOWS["graph"]))
    assert [at - start for at, _ in served.frames] == pytest.approx([at for at, _ in quiet.frames])
    assert made.states == {"compared(equal)": 1}
    assert asyncio.get_running_loop().time() - start > 10 * (served.frames[-1][0] - start)


class Lagging(Tripwire):
    """Waits before every call."""

    def __init__(self, seconds: float) -> None:
        super().__init__(-1, crash, done=False)
        self._seconds = seconds

    async def before(self, effects: Effects) -> bool:
        """Wait."""
        await asyncio.sleep(self._seconds)
        return await super().before(effects)


@pytest.mark.parametrize("mode", MODES)
async def test_what_a_candidate_asks_otherwise_is_in_its_plays(mode: Mode) -> None:
    """The nearest recorded call is played, and the record holds what it asked."""

    def politely(event: Event) -> Event:
        return msgspec.structs.replace(event, content="x") if isinstance(event, Send) else event

    made, _ = await shadowed("legacy", mode, mapped(FLOWS["graph"], politely))
    assert made.states == {"compared(different)": 1}
    assert {play.how for play in made.runs[1].plays} == {"exact"}
    made, served = await shadowed("legacy", mode, cold)
    shadow = made.runs[1]
    asked = [play for play in shadow.plays if play.op == "stream"]
    assert [play.how for play in asked] == ["nearest", "nearest"]
    assert all(play.args is not None and b'"temperature":0.0' in bytes(play.args) for play in asked)
    assert [text.encode() for _, text in shadow.frames] == served.wire
    assert made.states == {"compared(different)": 1}


def cold(request: Any, effects: Effects) -> AsyncIterator[Event]:
    """Ask the model at another temperature."""
    settings = ModelOverrides(temperature=0.0)
    body = msgspec.structs.replace(request.body, model_config=settings)
    return FLOWS["graph"](replace(request, body=body), effects)


async def test_a_candidate_that_asks_for_what_is_not_there_misses() -> None:
    """No call at that site: its run fails with `tape_miss`, and the play says so."""
    made, _ = await shadowed("legacy", "replay", after(FLOWS["graph"], 3, astray))
    shadow = made.runs[1]
    assert shadow.outcome == "failed"
    assert shadow.error is not None
    assert (shadow.error.code, shadow.error.kind) == ("tape_miss", "TapeMiss")
    assert [(play.site, play.how) for play in shadow.plays][-1] == ("elsewhere", "missed")


async def astray(effects: Effects) -> None:
    """Call at a site that is not on the tape."""
    await effects.ids.new("elsewhere")


@pytest.mark.parametrize("mode", MODES)
async def test_a_takeover_cancels_the_shadow_of_that_exchange(mode: Mode) -> None:
    """The candidate serves now; it is not run again beside itself."""
    broken = after(FLOWS["legacy"], 6, crash)
    async with both("legacy", broken, FLOWS["graph"], shadow=100, mode=mode) as made:
        await made.ask()
    assert made.states == {"cancelled(takeover)": 1}
    assert [run.role for run in made.runs] == ["serving", "fallback"]


async def test_a_shadow_is_evicted_the_moment_its_stack_takes_over() -> None:
    """Not when the exchange ends: it would only compete with itself."""
    broken = after(FLOWS["legacy"], 6, crash)
    async with both("legacy", broken, FLOWS["graph"], shadow=100, mode="tail") as made:
        stream = await made.router.open(CHAT, CASE.body, None)
        await stream.open()
        endings = []
        async for _ in each(stream):
            shadow = made.router.shadows.run_of(stream.context.exchange)
            assert shadow is not None
            endings.append(shadow.outcome)
        made.router.close(stream)
    assert endings[5] is None
    assert endings[6] is not None
    assert endings[6].kind == "cancelled"


@pytest.mark.untraced
async def test_one_cause_of_failure_is_not_two() -> None:
    """Where both stacks refuse, or both pass on the provider's fault, they are equal."""
    for seed in range(40):
        async with House(case(seed), Rules(shadow=100)) as made:
            await made.ask()
        assert made.states == {"compared(equal)": 1}


@pytest.mark.parametrize("mode", MODES)
async def test_only_one_shadow_tails_and_the_rest_replay(mode: Mode) -> None:
    """All are compared in the end."""
    async with both("legacy", FLOWS["legacy"], FLOWS["graph"], shadow=100, mode=mode) as made:
        await crowd(made, 9)
    assert made.states == {"compared(equal)": 9}
    assert len(made.runs) == 18


async def test_a_record_says_that_no_second_run_was_due() -> None:
    """So that a comparison knows what is missing and what never was."""
    made = House(CASE, Rules(shadow=0))
    async with made:
        await made.ask()
    ((serving,),) = made.captured.batches
    assert serving.shadow == "not_sampled"


async def test_what_was_served_is_handed_over_before_its_shadow_has_run() -> None:
    """A kill in between costs the shadow alone; what needs none is handed over once."""
    waits = after(FLOWS["graph"], 2, dawdle(50.0))
    async with both("legacy", FLOWS["legacy"], waits, shadow=100) as made:
        served = await made.client(CASE.body)
        await asyncio.sleep(1.0)
        assert [(run.role, run.shadow) for run in made.runs] == [("serving", "due")]
        assert made.router.runs(served.exchange) is not None
    assert [run.role for run in made.runs] == ["serving", "shadow"]
    assert made.captured.puts == 2
    async with both("legacy", FLOWS["legacy"], FLOWS["graph"]) as made:
        await crowd(made, 3)
    assert made.captured.puts == 3


async def test_a_shadow_that_ends_at_once_is_written_with_what_was_served() -> None:
    """In one piece: it is redacted once, by what both runs teach."""
    async with both("legacy", FLOWS["legacy"], FLOWS["graph"], shadow=100) as made:
        await made.ask()
        await asyncio.sleep(1.0)  # what was held is not handed over again
        assert made.captured.puts == 1
    assert made.captured.puts == 1
    assert [(run.role, run.shadow) for run in made.runs] == [("serving", "due"), ("shadow", "")]


async def test_a_shadow_that_is_dropped_later_is_noted() -> None:
    """By a line of its own, which says why; the one that was compared has none."""
    waits = after(FLOWS["graph"], 2, dawdle(50.0))
    async with both("legacy", FLOWS["legacy"], waits, shadow=100) as made:
        await crowd(made, 3)
        await asyncio.sleep(1.0)
        await made.router.aclose(0.0)
    assert made.states == {"dropped(stopping)": 3}
    for serving, second in made.captured.batches:
        assert (serving.shadow, second.shadow, second.outcome) == ("due", "dropped", "cancelled")
        assert (second.stack, second.error and second.error.code) == ("graph", "stopping")
        assert (second.frames, second.plays, second.request, second.tape) == ((), (), None, None)
        assert decode_run(encode_run(second)) == second


async def test_what_the_captures_did_not_take_has_no_second_run() -> None:
    """A line alone would be an exchange without its served run."""
    waits = after(FLOWS["graph"], 2, dawdle(50.0))
    async with both("legacy", FLOWS["legacy"], waits, shadow=100) as made:
        made.captured.answer = "dropped"
        await made.ask()
    assert made.states == {"compared(equal)": 1}
    assert [run.role for run in made.runs] == ["serving"]


async def test_a_full_queue_drops_and_never_waits() -> None:
    """So many wait, the rest is dropped, and written without a shadow."""
    slow = after(FLOWS["graph"], 2, dawdle(50.0))
    async with both("legacy", FLOWS["legacy"], slow, shadow=100, queue=2) as made:
        await crowd(made, 7)
    assert made.states == {"compared(equal)": 2, "dropped(queue_full)": 5}
    told = sorted((b[0].shadow, b[0].shadow_reason, len(b)) for b in made.captured.batches)
    assert told == [("dropped", "queue_full", 1)] * 5 + [("due", "", 2)] * 2


async def test_a_shadow_that_hangs_holds_up_the_others_no_longer_than_its_time() -> None:
    """Then it is compared as it is, and the next one runs."""
    async with both(
        "legacy", FLOWS["legacy"], after(FLOWS["graph"], 2, hang), shadow=100, shadow_seconds=5.0
    ) as made:
        await crowd(made, 3)
    assert made.states == {"compared(different)": 3}
    assert {run.outcome for run in made.runs if run.role == "shadow"} == {"timeout"}


@pytest.mark.parametrize("mode", MODES)
async def test_the_records_of_an_exchange_read_back(mode: Mode) -> None:
    """The serving line has request and tape, the shadow's has neither; both have plays."""
    made = House(CASE, Rules(shadow=100, mode=mode), price=priced)
    async with made:
        served = await made.ask()
    (batch,) = made.captured.batches
    assert [decode_run(encode_run(run)) for run in batch] == batch
    serving, shadow = batch
    assert (serving.shadow, shadow.shadow) == ("due", "")
    assert {run.exchange for run in batch} == {served.exchange}
    assert serving.request is not None
    assert (shadow.request, shadow.tape) == (None, None)
    assert serving.tape is not None
    assert [entry.seq for entry in serving.tape] == list(range(len(serving.tape)))
    stamps = [at for at, _ in serving.frames]
    assert stamps == sorted(stamps)
    for run in batch:
        described(run)
    assert (serving.cost, shadow.cost) == (0.75, None)


def described(run: RunRecord) -> None:
    """Check what is recorded of every run."""
    assert (run.v, run.flow, run.config, run.reason) == (1, "chat", "v-1", "percent")
    assert run.code == {"legacy": "l1", "graph": "g1"}[run.stack]
    assert set(run.nodes) == {
        "initialize",
        "prompt_generation",
        "model_call",
        "tool_execution",
        "output_processing",
        "cleanup",
    }
    assert [use.finish for use in run.models] == ["tool_calls", "stop"]
    assert [use.usage for use in run.models] == [None, Usage(1, 2, 3)]
    assert 0 <= run.bucket < 100_000


def priced(model: str, usage: Usage) -> float | None:
    """Quarter of a coin a token, of the one model with a price."""
    return usage.total_tokens * 0.25 if model == "gpt-4.1" else None


async def test_a_takeover_is_paid_by_whoever_asked() -> None:
    """The lines' costs add up to what the provider bills."""
    for index in range(15):
        broken = after(FLOWS["legacy"], index, crash)
        async with House(CASE, Rules(), legacy=broken, price=priced) as made:
            await made.ask()
        assert sum(run.cost or 0 for run in made.runs) == 0.75


async def test_faults_of_our_own_are_called_so() -> None:
    """A price list that raises, a place for captures that raises: the books still balance."""

    def broken(_answered: str, _usage: object) -> float:
        raise ZeroDivisionError

    for shadow, expected in ((100, "failed(harness)"), (0, "not_sampled")):
        async with House(CASE, Rules(shadow=shadow), price=broken) as made:
            await made.client(CASE.body)
        assert made.states == {expected: 1}
        assert made.router.ledger.open == 0


def test_shouting_is_a_change() -> None:
    """The distortion the tests of takeover rely on does distort."""
    assert shouted(Send("a")) == Send("A")


@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize("mode", MODES)
async def test_a_settled_exchange_is_let_go_of_at_once(assigned: StackName, mode: Mode) -> None:
    """Its tape is large: waiting for the garbage collector it would cost memory and pauses."""
    house = both(assigned, FLOWS[assigned], FLOWS[other(assigned)], shadow=100, mode=mode)
    with without_collector():
        async with house as made:
            served = await made.ask()
            gone = weakref.ref(served.stream)
            del served
            await asyncio.sleep(1)
            assert made.states == {"compared(equal)": 1}
            assert gone() is None
