"""Breakers in the router: whose failures count, who serves instead, and how it comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from contract.errors import EffectFailed, Fault, Refused
from contract.flow import Event
from contract.flows.chat import CHAT, Accept
from effects.model import Fail
from router.config.schema import BreakerSettings
from router.problems import Problem
from router.stack import StackName
from tests.support.faulty_stacks import after, crash, hang
from tests.support.flow_runs import Case
from tests.support.router_world import House, Served
from tests.support.tool_replies import CASE, FLOWS, both, other, pieces

pytestmark = pytest.mark.virtual

RULES = BreakerSettings(least_requests=4, open_seconds=10.0, probes=2)


class Faulty:
    """A flow that crashes after its fourth frame for as long as it is told to."""

    def __init__(self, stack: StackName) -> None:
        self.broken = True
        self.began = 0
        self._well = FLOWS[stack]
        self._crashing = after(FLOWS[stack], 4, crash)

    def __call__(self, request: Any, effects: Any) -> Any:
        """Be the flow."""
        self.began += 1
        return (self._crashing if self.broken else self._well)(request, effects)


def guarded(assigned: StackName, first: Any, rules: BreakerSettings = RULES, **more: Any) -> House:
    """Build a house with breakers whose assigned stack is `first`."""
    made = both(assigned, first, FLOWS[other(assigned)], **more)
    made.settings = made.settings.model_copy(update={"breaker": rules})
    return made


async def ask(made: House, times: int) -> list[Served]:
    """Ask so often, one after the other, each time for another message."""
    asked = [msgspec.structs.replace(CASE.body, message_id=f"m{n}") for n in range(times)]
    return [await made.ask(body) for body in asked]


def states(made: House) -> dict[str, str]:
    """Return the breakers' states by stack."""
    return {stack: state for _, stack, state in made.router.admission.breakers.states()}


@pytest.mark.parametrize("assigned", ["legacy", "graph"])
async def test_a_failing_stack_is_spared_probed_and_trusted_again(assigned: StackName) -> None:
    """Four crashes open it; the other one then serves from the first frame; two probes close it."""
    faulty = Faulty(assigned)
    async with guarded(assigned, faulty) as made:
        await ask(made, 4)
        assert faulty.began == 4
        assert made.router.counts.takeovers == 4
        assert states(made)[assigned] == "open"
        spared = await ask(made, 3)
        assert faulty.began == 4
        for served in spared:
            assert served.comments == [], "no stack took over: it served from the start"
            serving = served.stream
            assert serving.context.assignment.stack == assigned
            assert serving.served_by.name == other(assigned)
        runs = [run for run in made.runs if run.exchange == spared[0].exchange]
        assert [(run.role, run.stack, run.assigned, run.served, run.reason) for run in runs] == [
            ("serving", other(assigned), assigned, other(assigned), "breaker")
        ]
        assert made.router.counts.bypassed == 3
        faulty.broken = False
        await asyncio.sleep(10.0)
        assert states(made)[assigned] == "probing"
        probes = await ask(made, 2)
        assert [served.stream.served_by.name for served in probes] == [assigned] * 2
        assert states(made)[assigned] == "closed"


async def test_a_failed_probe_opens_it_again_and_its_user_is_rescued() -> None:
    """A failed probe is taken over like any stream."""
    faulty = Faulty("graph")
    async with guarded("graph", faulty) as made:
        (first, *_) = await ask(made, 4)
        await asyncio.sleep(10.0)
        (probe,) = await ask(made, 1)
        assert probe.wire == first.wire
        assert faulty.began == 5
        assert states(made)["graph"] == "open"


async def test_with_nobody_to_stand_in_it_is_tried_all_the_same() -> None:
    """Half of the answers are better than none; that is the default."""
    faulty = Faulty("graph")
    async with guarded("graph", faulty, stand_in=False) as made:
        await ask(made, 6)
        assert faulty.began == 6
        assert states(made)["graph"] == "open"
        assert {run.reason for run in made.runs} == {"percent"}


async def test_a_flow_may_refuse_instead() -> None:
    """503 with the seconds until it is tried again; nothing is begun, nothing is in the books."""
    faulty = Faulty("graph")
    flow = {"when_open": "refuse"}
    async with guarded("graph", faulty, stand_in=False, flow=flow) as made:
        await ask(made, 4)
        await asyncio.sleep(7.5)
        with pytest.raises(Problem) as caught:
            await made.router.open(CHAT, CASE.body, None)
        problem = caught.value
        assert (problem.status, problem.code, problem.retry_after) == (503, "breaker_open", 3)
        assert faulty.began == 4
        assert made.router.ledger.open == 0
        assert made.router.counts.requests == 4


async def test_legacy_alone_is_never_refused() -> None:
    """It is what was there before: an open breaker matters only where graph may stand in."""
    faulty = Faulty("legacy")
    async with guarded("legacy", faulty, stand_in=False, flow={"when_open": "refuse"}) as made:
        await ask(made, 6)
        assert faulty.began == 6


async def test_with_both_open_the_assigned_one_is_tried() -> None:
    """And the other one stands in as ever."""
    graph, legacy = Faulty("graph"), Faulty("legacy")
    made = both("graph", graph, legacy)
    made.settings = made.settings.model_copy(update={"breaker": RULES})
    async with made:
        await ask(made, 8)
        assert states(made) == {"graph": "open", "legacy": "open"}
        assert (graph.began, legacy.began) == (4, 8)
        await ask(made, 1)
        assert (graph.began, legacy.began) == (5, 9)


async def test_switched_off_it_counts_nothing() -> None:
    """And skips no stack."""
    faulty = Faulty("graph")
    async with guarded("graph", faulty, BreakerSettings(enabled=False, least_requests=1)) as made:
        await ask(made, 6)
        assert faulty.began == 6
        assert states(made) == {}


async def refusing(_: object, __: object) -> AsyncIterator[Event]:
    """Refuse everything, properly."""
    for code in ("busy",):
        raise Refused(409, code)
    yield Accept()


async def test_neither_the_world_nor_clients_nor_refusals_open_it() -> None:
    """A provider that fails, readers that leave, requests turned down: no stack's fault."""
    eager = BreakerSettings(least_requests=1, failure_ratio=0.01)
    case = Case(CASE.body, answers=((*pieces("a"), Fail(Fault("model_unavailable"))),) * 4)
    world = House(case)
    world.settings = world.settings.model_copy(update={"breaker": eager})
    async with world:
        for _ in range(4):
            await world.ask()
        assert {run.outcome for run in world.runs} == {"failed"}
        assert states(world) == {"legacy": "closed"}
    async with guarded("legacy", refusing, eager) as turned_down:
        await ask(turned_down, 2)
        assert states(turned_down) == {"legacy": "closed"}
    async with guarded("legacy", after(FLOWS["legacy"], 3, hang), eager) as left:
        await left.ask(leaves_after=2)
        assert states(left) == {"legacy": "closed"}


def fails_in_the_world(request: Any, effects: Any) -> Any:
    """Crash, or fail because of the world, or be left, as the message id says."""
    wanted = {"c": crash, "w": unreachable, "l": hang}[request.body.message_id[0]]
    return after(FLOWS["legacy"], 4, wanted)(request, effects)


async def unreachable(_: object) -> None:
    """Fail as an effect does whose other end is not there."""
    raise EffectFailed(Fault("store_unavailable"))


async def test_what_says_nothing_does_not_count_as_well_either() -> None:
    """Three failed of three that tell, whatever there was between: too few to open it."""
    async with guarded("legacy", fails_in_the_world) as made:
        for name in ("w1", "l1", "c1", "w2", "l2", "c2", "w3", "l3", "c3"):
            body = msgspec.structs.replace(CASE.body, message_id=name, chat_id=name)
            await made.ask(body, leaves_after=3 if name[0] == "l" else None)
        assert states(made)["legacy"] == "closed"
        await made.ask(msgspec.structs.replace(CASE.body, message_id="c4", chat_id="c4"))
        assert states(made)["legacy"] == "open"


async def test_a_failure_counts_at_once() -> None:
    """Not only when the stream that was taken over has ended."""
    eager = BreakerSettings(least_requests=1)
    slow = after(FLOWS["legacy"], 6, hang)
    made = both("graph", Faulty("graph"), slow, stall_seconds=60.0)
    made.settings = made.settings.model_copy(update={"breaker": eager})
    async with made:
        stream = asyncio.ensure_future(made.client(CASE.body))
        await asyncio.sleep(10.0)
        assert not stream.done()
        assert states(made)["graph"] == "open"
        made.router.cut()
        await stream


async def test_shadows_and_stand_ins_count_for_nobody() -> None:
    """Only the stack that was tried first is judged."""
    eager = BreakerSettings(least_requests=1, failure_ratio=0.01)
    async with guarded("graph", FLOWS["graph"], eager, shadow=100) as made:
        await ask(made, 2)
        await asyncio.sleep(100.0)
        assert states(made) == {"graph": "closed"}
    broken = both("graph", Faulty("graph"), Faulty("legacy"))
    broken.settings = broken.settings.model_copy(update={"breaker": eager})
    async with broken:
        await ask(broken, 1)
        assert states(broken) == {"graph": "open"}


async def test_the_spared_stack_still_runs_in_the_shadow() -> None:
    """That is how one finds out why it fails."""
    faulty = Faulty("graph")
    async with guarded("graph", faulty, shadow=100) as made:
        await ask(made, 5)
        await asyncio.sleep(100.0)
        assert made.states == {"cancelled(takeover)": 4, "compared(different)": 1}
        assert [run.stack for run in made.runs[-2:]] == ["legacy", "graph"]


async def test_other_rules_begin_with_closed_breakers() -> None:
    """Results of what began under the old ones say nothing of the new."""
    faulty = Faulty("graph")
    async with guarded("graph", faulty) as made:
        await ask(made, 4)
        assert states(made)["graph"] == "open"
        fresh = RULES.model_copy(update={"least_requests": 2})
        made.settings = made.settings.model_copy(update={"breaker": fresh})
        assert states(made)["graph"] == "closed"


async def test_it_is_closed_by_hand() -> None:
    """The state it was in is told."""
    async with guarded("graph", Faulty("graph")) as made:
        await ask(made, 4)
        assert made.router.admission.breakers.reset("chat", "graph") == "open"
        assert states(made)["graph"] == "closed"
