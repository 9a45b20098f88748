"""Admission: bulkheads between stacks, shedding with its reasons, and places given back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from contract.flows.chat import CHAT, ChatRequest
from effects.model import Hang
from router.config.schema import BreakerSettings, LimitSettings, RateSettings
from router.problems import Problem
from router.serving.stream import ServedStream
from router.stack import StackName
from tests.support.faulty_stacks import after, crash, hang
from tests.support.flow_runs import Case
from tests.support.router_world import House, Rules, Served
from tests.support.tool_replies import ASSIGNED, CASE, FLOWS, both, named, other, pieces

pytestmark = pytest.mark.virtual

SLOW = Case(CASE.body, answers=((*pieces("so ", "far"), Hang()),) * 4)

NO_PORTS = "no ports"
PINNED = {f"force_{name}": frozenset({f"{name}1", f"{name}2", f"{name}3"}) for name in ASSIGNED}


def limited(made: House, **limits: Any) -> House:
    """Set other limits of a house."""
    made.settings = made.settings.model_copy(update={"limits": LimitSettings(**limits)})
    return made


async def refused(made: House, body: ChatRequest) -> tuple[int, str, int]:
    """Return what a request is shed with."""
    with pytest.raises(Problem) as caught:
        await made.router.open(CHAT, body, None)
    return caught.value.status, caught.value.code, caught.value.retry_after


def streams(made: House, *ids: str) -> list[asyncio.Task[Served]]:
    """Open streams that do not end by themselves."""
    return [asyncio.ensure_future(made.client(named(one))) for one in ids]


async def over(made: House, tasks: list[asyncio.Task[Served]]) -> None:
    """End them."""
    made.router.cut()
    await asyncio.gather(*tasks)
    await asyncio.sleep(1.0)


async def test_a_full_router_sheds_and_a_place_given_back_is_free() -> None:
    """503 `overloaded` with a time to come back; nothing is begun for it."""
    async with limited(House(SLOW), streams=2) as made:
        open_ones = streams(made, "a", "b")
        await asyncio.sleep(1.0)
        assert await refused(made, named("c")) == (503, "overloaded", 1)
        with pytest.raises(Problem):
            made.router.admission.check_slot("chat")
        assert made.router.admission.shed == {"overloaded": 2}
        assert (made.router.ledger.open, made.router.counts.requests) == (2, 2)
        await over(made, open_ones)
        assert made.router.admission.streams.total == 0
        made.router.admission.check_slot("chat")


async def test_a_flow_has_its_own_limit() -> None:
    """Beside the router's."""
    async with House(SLOW, Rules(flow={"max_streams": 1})) as made:
        open_ones = streams(made, "a")
        await asyncio.sleep(1.0)
        assert await refused(made, named("b")) == (503, "overloaded", 1)
        await over(made, open_ones)


@pytest.mark.parametrize("slow", ASSIGNED)
async def test_a_slow_stack_cannot_take_the_places_of_the_other(slow: StackName) -> None:
    """With its own places gone it sheds, and the other one serves as ever."""
    made = both(slow, after(FLOWS[slow], 3, hang), FLOWS[other(slow)], flow=PINNED, stand_in=False)
    async with limited(made, legacy_streams=2, graph_streams=2, streams=4) as made:
        open_ones = streams(made, f"{slow}1", f"{slow}2")
        await asyncio.sleep(0.5)
        assert made.router.admission.streams.stacks[slow] == 2
        assert await refused(made, named(f"{slow}3")) == (503, "overloaded", 1)
        served = await made.client(named(f"{other(slow)}1"))
        assert served.status == 200
        assert served.stream.served_by.name == other(slow)
        await over(made, open_ones)


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_whoever_is_rescued_needs_no_place(assigned: StackName) -> None:
    """The stand-in is full, and serves all the same; its place is counted with it."""
    broken, standing = after(FLOWS[assigned], 4, crash), after(FLOWS[other(assigned)], 5, hang)
    made = both(assigned, broken, standing, flow=PINNED, stall_seconds=50.0)
    stand_in = other(assigned)
    limits = {"legacy_streams": 1, "graph_streams": 1, "stall_seconds": 50.0}
    async with limited(made, **limits) as made:
        open_ones = [asyncio.ensure_future(made.client(named(f"{stand_in}1")))]
        await asyncio.sleep(0)
        open_ones.append(asyncio.ensure_future(made.client(named(f"{assigned}1"))))
        await asyncio.sleep(5.0)
        assert made.router.counts.requests == 2
        assert [task.done() for task in open_ones] == [False, False]
        assert +made.router.admission.streams.stacks == {stand_in: 2}
        assert (await refused(made, named(f"{stand_in}2")))[1] == "overloaded"
        await over(made, open_ones)
        assert +made.router.admission.streams.stacks == {}


async def test_whoever_is_spared_needs_no_place_either() -> None:
    """An open breaker sends to a full stack: that is a fallback, decided early."""
    made = both("graph", after(FLOWS["graph"], 4, crash), FLOWS["legacy"])
    rules = BreakerSettings(least_requests=1)
    made.settings = made.settings.model_copy(update={"breaker": rules})
    async with limited(made, legacy_streams=1) as made:
        await made.ask(named("a"))
        streams = [await made.router.open(CHAT, named(f"m{n}"), None) for n in range(2)]
        assert made.router.admission.streams.stacks["legacy"] == 2
        end(made, streams)


async def test_a_shed_probe_gives_its_leave_back() -> None:
    """Who was to probe a full stack says nothing of it, and another one probes."""
    made = both("graph", after(FLOWS["graph"], 4, crash), FLOWS["legacy"])
    rules = BreakerSettings(least_requests=1, probes=1)
    made.settings = made.settings.model_copy(update={"breaker": rules})
    async with limited(made, graph_streams=1) as made:
        long_one = await made.router.open(CHAT, named("long"), None)
        made.router.admission.streams.stacks["graph"] -= 1
        await made.ask(named("a"))
        made.router.admission.streams.stacks["graph"] += 1
        await asyncio.sleep(15.0)
        assert (await refused(made, named("b")))[1] == "overloaded"
        end(made, [long_one])
        await asyncio.sleep(1.0)
        probe = await made.router.open(CHAT, named("c"), None)
        assert probe.primary.name == "graph"
        end(made, [probe])


def end(made: House, streams: list[ServedStream]) -> None:
    """Let their clients leave."""
    for stream in streams:
        stream.disconnect()
        made.router.close(stream)


async def test_one_user_may_ask_so_often() -> None:
    """429 with the time until the next one; others are not touched, an edit is in force at once."""
    async with House(CASE) as made:
        limit = RateSettings(per_minute=6, burst=2)
        made.settings = made.settings.model_copy(update={"rate": limit})
        for number in range(2):
            await made.ask(named(f"m{number}", user_id="u"))
        assert (await refused(made, named("m3", user_id="u")))[:2] == (429, "rate_limited")
        assert 0 < (await refused(made, named("m3", user_id="u")))[2] <= 10
        await made.ask(named("m4", user_id="v"))
        await made.ask(named("m5"))
        await asyncio.sleep(10.0)
        await made.ask(named("m6", user_id="u"))
        assert made.router.admission.shed == {"rate_limited": 2}
        made.settings = made.settings.model_copy(update={"rate": RateSettings()})
        await made.ask(named("m7", user_id="u"))


async def test_or_one_route_key_may() -> None:
    """As the flow routes: here by conversation."""
    async with House(CASE, Rules(flow={"route_key": "session_id"})) as made:
        limit = RateSettings(per_minute=1, burst=1, by="route_key")
        made.settings = made.settings.model_copy(update={"rate": limit})
        await made.ask(named("m1", chat_id="c", user_id="u"))
        assert (await refused(made, named("m2", chat_id="c", user_id="v")))[1] == "rate_limited"
        await made.ask(named("m3", chat_id="d", user_id="u"))


async def test_a_request_that_cannot_be_opened_keeps_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its ports could not be made: the place is free, and so is the leave to try."""
    async with House(CASE) as made:

        def broken() -> Any:
            raise OSError(NO_PORTS)

        monkeypatch.setattr(made.world, "live", broken)
        with pytest.raises(OSError, match="no ports"):
            await made.router.open(CHAT, CASE.body, None)
        assert made.router.admission.streams.total == 0
        monkeypatch.undo()
