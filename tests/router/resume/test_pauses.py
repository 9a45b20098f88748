"""Pausing and going on through the router: on either stack, after a restart, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal

import pytest

from contract.flow import Event, Flow, Request
from contract.ports import Effects
from effects.model import says
from effects.testing import World
from effects.tools.fake import ScriptedTools
from evidence.outcomes import start_of
from router.config.schema import LimitSettings, Settings
from router.problems import Problem
from router.serving.stack import LocalStack
from router.stack import Powers, StackName
from router.telemetry.access_log import AccessLog
from router.telemetry.instruments import DURATION, LAST_FRAME, PAUSE_BYTES
from router.telemetry.metrics import ExchangeMetrics, MetricValues
from tests.support.clocks import now
from tests.support.log_records import listening
from tests.support.metrics_page import shown
from tests.support.pausing_flow import Ask, Desk, FlakyPauses, Options, Said, looping
from tests.support.recorded_spans import Traced, times

pytestmark = pytest.mark.virtual

BOTH: list[tuple[StackName, StackName]] = [
    ("legacy", "legacy"),
    ("legacy", "graph"),
    ("graph", "legacy"),
    ("graph", "graph"),
]
BEFORE = ["Hello", " there", "?", "suspended"]
AFTER = ["approve blue", "paid", "completed"]


def world() -> World:
    """Make a world with a model and two tools; to pay takes a second, and is no reading."""
    answers = {"book": "booked", "pay": "paid"}
    tools = ScriptedTools(answers, slow={"pay": 1.0}, writes=["pay"])
    return World(says("Hello", " there"), tools=tools)


@pytest.mark.parametrize(("first", "then"), BOTH)
async def test_a_pause_goes_on_wherever_it_was_made(first: StackName, then: StackName) -> None:
    """The stack that is assigned now serves the rest, and no call is made twice."""
    desk = Desk(world())
    desk.assigned = first
    paused = await desk.ask()
    assert paused.said == BEFORE
    await desk.answer(paused.hitl_id, colour="blue")
    desk.assigned = then
    desk.start()
    rest = await desk.go_on(paused.hitl_id)
    assert rest.said == AFTER
    assert rest.stream is not None
    assert rest.stream.served_by.name == then
    assert desk.world.count("model.stream") == 1
    assert desk.world.count("tools.run") == 2


async def test_the_line_of_a_resumed_exchange_names_the_paused_one() -> None:
    """And says how many frames the client had before."""
    desk = Desk(world())
    paused = await desk.ask()
    await desk.answer(paused.hitl_id)
    rest = await desk.go_on(paused.hitl_id)
    assert paused.stream is not None
    assert rest.stream is not None
    first, second = (batch[0] for batch in desk.captured.batches)
    assert (first.outcome, first.resumes, first.sent) == ("paused", "", 0)
    assert (second.outcome, second.resumes, second.sent) == ("completed", first.exchange, 3)
    assert len(second.frames) == 6


async def test_times_of_a_resumed_exchange_count_from_where_it_goes_on() -> None:
    """In the log, in metrics, in its trace and offline; how long the pause was is a fact apart."""
    tools = ScriptedTools({"book": "booked", "pay": "paid"}, slow={"book": 30.0, "pay": 1.0})
    desk = Desk(World(says("Hello", " there"), tools=tools))
    values, kept = MetricValues(), Traced()
    desk.start(observers=[AccessLog(), kept.observer, ExchangeMetrics(values, lambda: ())])
    with listening() as lines:
        paused = await desk.ask()
        asked = now()
        await asyncio.sleep(3_600)
        await desk.answer(paused.hitl_id)
        went_on = now()
        rest = await desk.go_on(paused.hitl_id)
    assert rest.stream is not None
    context = rest.stream.context
    assert context.start == start_of(context.records) > 0
    took = now() - went_on
    assert 1.0 <= took < 2.0
    first, second = (fields for said, _, fields in lines.said if said == "exchange")
    assert (first["resumes"], first["paused_ms"]) == (None, None)
    assert second["resumes"] == first["exchange"]
    assert second["paused_ms"] == pytest.approx((went_on - asked) * 1e3, abs=1)
    assert second["duration_ms"] == pytest.approx(took * 1e3, abs=1)
    assert 0 <= second["first_frame_ms"] <= second["duration_ms"]
    both = first["duration_ms"] + second["duration_ms"]
    for histogram in (DURATION, LAST_FRAME):
        assert shown(values, histogram, "_count") == {("asking", "legacy", "legacy"): 2}
    [seconds] = shown(values, DURATION, "_sum").values()
    assert seconds * 1e3 == pytest.approx(both, abs=1)
    outer = [span for span in kept.spans if span.parent is None][1]
    assert times(outer, int(went_on * 1e6)) == pytest.approx((0, took * 1e6), abs=1)
    for span in kept.below(outer):
        began, ended = times(span, int(went_on * 1e6))
        assert 0 <= began <= ended <= took * 1e6 + 1


async def test_the_line_of_a_paused_run_has_the_size_of_its_row() -> None:
    """As the pause is stored when the exchange has ended; its shadow stores none."""
    desk, values = Desk(world()), MetricValues()
    desk.shadow = Decimal(100)
    desk.start(observers=[ExchangeMetrics(values, lambda: ())])
    paused = await desk.ask()
    stored = await desk.pauses.get(paused.hitl_id)
    assert stored is not None
    size = desk.pauses.row_bytes(stored)
    assert size > len(stored.tape) > 100
    (batch,) = desk.captured.batches
    assert [(run.role, run.outcome, run.pause_bytes) for run in batch] == [
        ("serving", "paused", size),
        ("shadow", "paused", 0),
    ]
    await desk.answer(paused.hitl_id)
    await desk.go_on(paused.hitl_id)
    assert {run.pause_bytes for run in desk.captured.batches[1]} == {0}
    assert shown(values, PAUSE_BYTES, "_sum") == {("asking",): size}
    assert shown(values, PAUSE_BYTES, "_count") == {("asking",): 1}


async def test_the_shadow_of_a_pause_and_of_what_follows_is_equal() -> None:
    """The other stack pauses at the same question and goes on with the same answer."""
    desk = Desk(world())
    desk.shadow = Decimal(100)
    hitl_id = await desk.answered()
    await desk.go_on(hitl_id)
    states = {(line.state, line.reason): n for line, n in desk.router.ledger.counts.items()}
    assert states == {("compared", "equal"): 2}


async def test_one_of_two_who_go_on_at_once_wins() -> None:
    """The other is told so, before any frame."""
    desk = Desk(world())
    hitl_id = await desk.answered()
    replies = await asyncio.gather(desk.go_on(hitl_id), desk.go_on(hitl_id), return_exceptions=True)
    problems = [it for it in replies if isinstance(it, Problem)]
    assert [(it.status, it.code) for it in problems] == [(409, "continued_already")]
    assert desk.world.count("tools.run") == 2


async def test_what_is_over_is_not_gone_on_from_again() -> None:
    """A finished pause answers 409, and runs nothing."""
    desk = Desk(world())
    hitl_id = await desk.answered()
    await desk.go_on(hitl_id)
    assert await desk.refused(hitl_id) == (409, "finished")


async def test_a_client_that_leaves_gives_the_pause_back() -> None:
    """The next resumption gets the rest; what was done after the answer is not repeated."""
    desk = Desk(world())
    hitl_id = await desk.answered(colour="blue")
    left = await desk.go_on(hitl_id, leaves=1)
    assert left.said == AFTER[:1]
    again = await desk.go_on(hitl_id)
    assert again.said == AFTER
    assert desk.world.count("tools.run") == 2


async def test_a_crash_while_going_on_is_taken_over() -> None:
    """By the other stack, on the same tape: the client notices nothing."""

    async def crashing(request: Request[Ask, Options], effects: Effects) -> AsyncIterator[Event]:
        frames = 0
        async for event in looping(request, effects):
            frames += 1
            yield event
            if frames == 4:
                raise RuntimeError

    desk = Desk(world(), graph=crashing)
    hitl_id = await desk.answered(colour="blue")
    desk.assigned = "graph"
    rest = await desk.go_on(hitl_id)
    assert rest.said == AFTER
    assert desk.world.count("tools.run") == 2


async def test_what_nobody_could_take_over_can_be_gone_on_from() -> None:
    """The client was told that it failed: the answer is not lost, and no tool is run twice."""

    async def crashing(request: Request[Ask, Options], effects: Effects) -> AsyncIterator[Event]:
        async for event in looping(request, effects):
            if event == Said("paid"):
                raise RuntimeError
            yield event

    desk = Desk(world(), legacy=crashing, graph=crashing)
    hitl_id = await desk.answered()
    assert (await desk.go_on(hitl_id)).said == ["approve red", "failed"]
    again = _deployed(desk, looping)
    assert (await again.go_on(hitl_id)).said == ["approve red", "paid", "completed"]
    assert again.world.count("tools.run") == 0


async def test_what_a_router_cuts_off_when_it_stops_can_be_gone_on_from() -> None:
    """At the next one: the question was answered, and is not asked again."""
    desk = Desk(world())
    hitl_id = await desk.answered()
    going_on = asyncio.create_task(desk.go_on(hitl_id))
    await asyncio.sleep(0.5)
    desk.router.cut()
    assert (await going_on).said == ["approve red", "failed"]
    desk.start()
    assert (await desk.go_on(hitl_id)).said == ["approve red", "paid", "completed"]
    assert desk.world.count("tools.run") == 2


async def test_a_new_turn_expires_what_waits_in_its_session() -> None:
    """Only there: another session's question stays open."""
    desk = Desk(world())
    paused = await desk.ask(session="one")
    other = await desk.ask(session="two")
    await desk.ask("hello", session="one")
    with pytest.raises(Problem) as told:
        await desk.answer(paused.hitl_id)
    assert (told.value.status, told.value.code) == (410, "expired")
    await desk.answer(other.hitl_id)


async def test_going_on_needs_the_session_for_itself() -> None:
    """While another turn is under way the pause cannot go on, and is not lost by trying."""
    desk = Desk(world())
    hitl_id = await desk.answered()
    busy = desk.world.locks.for_exchange()
    assert await busy.acquire("test", "session:s", 60.0)
    assert await desk.refused(hitl_id) == (409, "session_busy")
    await busy.release("test", "session:s")
    await asyncio.sleep(1)
    assert (await desk.go_on(hitl_id)).said[-1] == "completed"


class Full(Desk):
    """A desk whose tapes may hold nothing more in all."""

    def _settings(self) -> Settings:
        return super()._settings().model_copy(update={"limits": LimitSettings(total_bytes=1)})


async def test_whoever_is_turned_away_while_there_is_no_room_leaves_the_pause() -> None:
    """What a tape cannot hold of what is done is no reason where nothing was done."""
    desk = Desk(world())
    hitl_id = await desk.answered()
    full = Full(desk.world, pauses=desk.pauses)
    busy = desk.world.locks.for_exchange()
    assert await busy.acquire("test", "session:s", 60.0)
    with pytest.raises(Problem, match="session_busy"):
        await full.go_on(hitl_id)
    await busy.release("test", "session:s")
    await asyncio.sleep(1)
    assert (await desk.go_on(hitl_id)).said[-1] == "completed"


class Deleted(FlakyPauses):
    """Pauses of a session that is deleted just before its lock is taken."""

    async def renew(
        self, hitl_id: str, owner: str, lease_s: float, tape: bytes | None = None
    ) -> bool:
        """Extend a claim, too late."""
        await self.erase((), ("s",))
        return await super().renew(hitl_id, owner, lease_s, tape)


async def test_a_pause_that_was_deleted_under_way_is_not_gone_on_from() -> None:
    """Nothing of the session may come back."""
    desk = Desk(world(), pauses=Deleted(now))
    hitl_id = await desk.answered()
    assert await desk.refused(hitl_id) == (404, "unknown_pause")
    await asyncio.sleep(1)
    assert desk.world.count("tools.run") == 1


async def test_what_is_wrong_with_an_answer_is_told_in_bounds() -> None:
    """It may have any number of fields."""
    desk = Desk(world())
    paused = await desk.ask()
    with pytest.raises(Problem) as told:
        await desk.answer(paused.hitl_id, **{f"field{number}": "x" for number in range(1_000)})
    assert len(told.value.detail) < 1_000


async def test_an_answer_is_held_against_its_form() -> None:
    """And a second, different one is refused; the same again is fine."""
    desk = Desk(world())
    paused = await desk.ask()
    with pytest.raises(Problem) as wrong:
        await desk.answer(paused.hitl_id, colour="green")
    assert (wrong.value.status, wrong.value.code) == (422, "invalid_answer")
    assert await desk.refused(paused.hitl_id) == (409, "unanswered")
    await desk.answer(paused.hitl_id, colour="blue")
    await desk.answer(paused.hitl_id, colour="blue")
    with pytest.raises(Problem) as second:
        await desk.answer(paused.hitl_id, "reject")
    assert (second.value.status, second.value.code) == (409, "answered_otherwise")


async def test_time_expires_a_question() -> None:
    """After as many seconds as a question is kept."""
    desk = Desk(world(), seconds=60.0)
    paused = await desk.ask()
    await asyncio.sleep(61)
    with pytest.raises(Problem) as told:
        await desk.answer(paused.hitl_id)
    assert (told.value.status, told.value.code) == (410, "expired")


async def test_another_deployment_does_not_ask_the_model_again() -> None:
    """A flow that asks something else before the answer is refused, and the pause stays."""

    async def changed(request: Request[Ask, Options], effects: Effects) -> AsyncIterator[Event]:
        body = Ask(request.body.session_id, "something else")
        async for event in looping(Request(body, request.options), effects):
            yield event

    desk = Desk(world())
    hitl_id = await desk.answered()
    desk = _deployed(desk, changed)
    refused = await desk.go_on(hitl_id)
    assert (refused.status, refused.code) == (409, "resume_mismatch")
    assert desk.world.count("model.stream") == 0
    pause = await desk.pauses.get(hitl_id)
    assert pause is not None
    assert pause.state == "answered"


def _deployed(before: Desk, flow: Flow) -> Desk:
    """Return a desk whose stacks both have other code, over the same pauses."""
    return Desk(world(), legacy=flow, graph=flow, pauses=before.pauses)


def moved(desk: Desk) -> None:
    """Start the desk again with the graph stack behind an address."""
    stacks = desk.start().stacks
    here = stacks["graph"]
    assert isinstance(here, LocalStack)
    there = replace(here, powers=Powers(taped=False, shadows=True, takes_over=False))
    desk.start(stacks={**stacks, "graph": there})


async def test_a_stack_behind_an_address_does_not_go_on_from_a_pause() -> None:
    """It would begin the turn anew. The pause waits for one that can, and knows its answer."""
    desk = Desk(world())
    hitl_id = await desk.answered(colour="blue")
    desk.assigned = "graph"
    moved(desk)
    free = desk.router.bytes_left
    with pytest.raises(Problem, match="not_served"):
        await desk.go_on(hitl_id)
    assert desk.router.bytes_left == free
    desk.assigned, desk.shadow = "legacy", Decimal(100)
    assert (await desk.go_on(hitl_id)).said == AFTER
    assert desk.world.count("model.stream") == 1
    states = {(line.state, line.reason) for line in desk.router.ledger.counts}
    assert states == {("not_sampled", "cannot")}


async def test_nor_does_it_stand_in_for_one_that_does() -> None:
    """Who fails while going on has no successor there: the pause is given back."""
    broken = False

    async def at_times(request: Request[Ask, Options], effects: Effects) -> AsyncIterator[Event]:
        if broken:
            raise RuntimeError
        async for event in looping(request, effects):
            yield event

    desk = Desk(world(), legacy=at_times)
    moved(desk)
    hitl_id = await desk.answered(colour="blue")
    broken = True
    assert (await desk.go_on(hitl_id)).status == 500
    broken = False
    assert (await desk.go_on(hitl_id)).said == AFTER
