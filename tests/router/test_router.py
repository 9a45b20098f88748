"""The router: who is assigned, one conclusion for each request, and a clean end."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from contract.flow import Event
from contract.flows.chat import CHAT, ChatRequest
from contract.qa_header import sign
from effects.model import Hang
from effects.testing import VirtualLoop
from router.problems import Problem
from router.routing.assignment import bucket
from router.stack import StackName
from tests.support.faulty_stacks import after, crash, deaf, hang
from tests.support.flow_runs import FOREVER, Case
from tests.support.router_world import QA_KEY, WALL, House, Rules, Served, each
from tests.support.tool_replies import ASSIGNED, CASE, FLOWS, house, named, pieces

pytestmark = pytest.mark.virtual


async def begun(house: House, body: ChatRequest, qa: str | None = None) -> tuple[str, str]:
    """Return who is assigned to a request, and why; it is served to its end."""
    served = await house.ask(body, qa=qa)
    assignment = served.stream.context.assignment
    assert house.runs[-1].assigned == assignment.stack
    assert house.runs[-1].reason == assignment.why
    return assignment.stack, assignment.why


@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize("wanted", ASSIGNED)
async def test_a_signed_header_chooses_the_stack(assigned: StackName, wanted: StackName) -> None:
    """For the route key it was signed for; anything else is ignored and counted."""
    async with House(CASE, Rules(assigned=assigned)) as made:
        header = sign(wanted, int(WALL) + 60, "m1", QA_KEY)
        assert await begun(made, named("m1"), header) == (wanted, "forced_header")
        assert await begun(made, named("m2"), header) == (assigned, "percent")
        assert await begun(made, named("m3"), "nonsense") == (assigned, "percent")
        assert made.router.counts.qa_ignored == 2
        assert made.router.counts.requests == 3


async def test_keys_can_be_pinned(caplog: pytest.LogCaptureFixture) -> None:
    """To either stack, whatever the percentage says; the header goes before the lists."""
    lists = {"force_graph": frozenset({"g"}), "force_legacy": frozenset({"l"})}
    async with House(CASE, Rules(flow={**lists, "langgraph_percent": Decimal(50)})) as made:
        assert await begun(made, named("g")) == ("graph", "force_list")
        assert await begun(made, named("l")) == ("legacy", "force_list")
        header = sign("legacy", int(WALL) + 60, "g", QA_KEY)
        assert await begun(made, named("g"), header) == ("legacy", "forced_header")
    assert not caplog.records


@pytest.mark.parametrize("stack", ASSIGNED)
@pytest.mark.parametrize("cause", ["forced_header", "force_list", "percent"])
async def test_a_record_keeps_what_assigned_a_request_that_another_stack_served(
    stack: StackName, cause: str
) -> None:
    """Its reason is the failure's; without one the record says it once."""
    lists = {f"force_{stack}": frozenset({"m"})} if cause == "force_list" else {}
    hashed: StackName = stack if cause == "percent" else ("legacy", "graph")[stack == "legacy"]
    rules = Rules(assigned=hashed, flow={"fallback_to_graph": True, **lists})
    header = sign(stack, int(WALL) + 60, "m", QA_KEY) if cause == "forced_header" else None
    for faulty in (False, True):
        flows = {**FLOWS, stack: after(FLOWS[stack], 4, crash)} if faulty else FLOWS
        async with House(CASE, rules, legacy=flows["legacy"], graph=flows["graph"]) as made:
            await made.ask(named("m"), qa=header)
        first = made.runs[0]
        assert (first.assigned, first.reason) == (stack, "crash" if faulty else cause)
        assert first.assigned_by == (cause if faulty else "")
        assert len(made.runs) == 1 + faulty


async def test_a_disabled_flow_never_reaches_the_graph_stack() -> None:
    """Not by percentage, list or header, not in the shadow, and not as a fallback."""
    flow = {
        "enable_langgraph": False,
        "langgraph_percent": Decimal(100),
        "force_graph": frozenset({"g"}),
    }
    rules = Rules(shadow=100, flow=flow)
    graph_ran: list[object] = []

    def graph(request: Any, effects: Any) -> Any:
        graph_ran.append(request)
        return FLOWS["graph"](request, effects)

    for legacy in (FLOWS["legacy"], after(FLOWS["legacy"], 4, crash)):
        async with House(CASE, rules, legacy=legacy, graph=graph) as made:
            header = sign("graph", int(WALL) + 60, "g", QA_KEY)
            assert await begun(made, named("g"), header) == ("legacy", "disabled")
            assert made.states == {"not_sampled": 1}
    assert graph_ran == []


async def test_requests_are_split_by_the_route_key() -> None:
    """The same chat is served by the same stack; without the key the default one counts."""
    flow = {"langgraph_percent": Decimal(50), "route_key": "session_id"}
    async with House(CASE, Rules(flow=flow)) as made:
        for number in range(12):
            chat = f"chat {number % 4}"
            expected = "graph" if bucket("a salt", chat) < 50_000 else "legacy"
            assert await begun(made, named(f"m{number}", chat_id=chat)) == (expected, "percent")
        expected = "graph" if bucket("a salt", "alone") < 50_000 else "legacy"
        assert await begun(made, named("alone")) == (expected, "percent")


async def test_a_request_is_concluded_once() -> None:
    """Twice said is once done: one ledger line, one batch of records, one count."""
    async with House(CASE, Rules(shadow=100)) as made:
        served = await made.ask()
        made.router.close(served.stream)
        made.router.close(served.stream)
        await asyncio.sleep(100.0)
        assert made.states == {"compared(equal)": 1}
        assert len(made.captured.batches) == 1


@pytest.mark.parametrize("shadow", [0, 100])
async def test_a_ticket_never_opened_is_settled_too(shadow: int) -> None:
    """As when its connection breaks before anything was asked."""
    async with House(CASE, Rules(shadow=shadow)) as made:
        stream = await made.router.open(CHAT, CASE.body, None)
        stream.disconnect()
        made.router.close(stream)
    expected = "cancelled(client_left)" if shadow else "not_sampled"
    assert made.states == {expected: 1}
    assert made.world.made == []


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_feedback_is_joined_to_the_assigned_stack(assigned: StackName) -> None:
    """Intention to treat: also where the other one served; an id never drawn is refused."""
    async with house(assigned, after(FLOWS[assigned], 5, crash)) as made:
        served = await made.ask()
        made.router.feedback(served.exchange, -1, "odd")
        with pytest.raises(Problem, match="404 unknown_exchange"):
            made.router.feedback("unknown", 1, None)
    [joined] = made.captured.feedbacks
    assert (joined.flow, joined.assigned) == ("chat", assigned)
    assert made.runs[1].stack != assigned
    assert made.router.feedbacks == {("chat", assigned, -1): 1}
    assert (joined.score, joined.comment, joined.at) == (-1, "odd", int(WALL * 1_000_000))


async def reading(house: House, body: ChatRequest) -> Served:
    """Be a client in a task of its own."""
    return await house.client(body)


async def test_closing_ends_open_streams_in_failure_frames() -> None:
    """No stream is left open, and everything is recorded when it returns."""
    case = Case(CASE.body, answers=((*pieces("so ", "far"), Hang()),))
    made = House(case, Rules(shadow=100))
    stream = asyncio.ensure_future(reading(made, case.body))
    await asyncio.sleep(5.0)
    await made.router.aclose(20.0)
    served = await stream
    assert served.wire[-2:] == [b'data: {"step":"FAILED"}\n\n', b'data: {"step":"END"}\n\n']
    await asyncio.sleep(5.0)
    assert made.router.draining
    assert made.states == {"cancelled(stopping)": 1}
    assert [run.outcome for run in made.runs] == ["failed"]
    assert made.world.model.open == 0


async def test_time_in_which_the_machine_stood_still_is_not_spent_by_closing() -> None:
    """A run that ignores cancellation is recorded when it returns, though the loop stood still."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    made = House(CASE, Rules(stand_in=False), legacy=after(FLOWS["legacy"], 4, deaf(40.0)))
    stream = asyncio.ensure_future(reading(made, CASE.body))
    await asyncio.sleep(5.0)
    made.router.cut()
    await stream
    assert not made.runs
    loop.call_later(0.1, loop.stand_still, 30.0)
    await made.router.aclose(0.2)
    assert [run.outcome for run in made.runs] == ["failed"]
    await asyncio.sleep(50.0)


async def test_closing_waits_for_shadows_as_long_as_it_may() -> None:
    """What is done by then is compared, the rest dropped; nothing goes on afterwards."""
    slow = after(FLOWS["graph"], 2, deaf(10.0))
    made = House(CASE, Rules(shadow=100), graph=slow)
    bodies = [named(f"m{number}") for number in range(4)]
    await asyncio.gather(*(made.client(body) for body in bodies))
    start = asyncio.get_running_loop().time()
    await made.router.aclose(25.0)
    assert asyncio.get_running_loop().time() - start <= 26.0
    assert made.states == {"compared(equal)": 2, "dropped(stopping)": 2}
    assert made.router.ledger.open == 0
    await asyncio.sleep(30.0)


async def test_what_ends_after_the_close_gets_no_shadow() -> None:
    """Its records are written all the same."""
    made = House(CASE, Rules(shadow=100))
    stream = await made.router.open(CHAT, CASE.body, None)
    await stream.open()
    assert len([frame async for frame in each(stream)]) > 12
    await made.router.aclose(0.0)
    made.router.close(stream)
    await asyncio.sleep(1.0)
    assert made.states == {"dropped(stopping)": 1}
    assert [run.role for run in made.runs] == ["serving"]


async def test_closing_is_not_held_up_by_a_shadow_that_hangs() -> None:
    """Its time is over with the router's."""
    made = House(CASE, Rules(shadow=100), graph=after(FLOWS["graph"], 2, hang))
    await made.client(CASE.body)
    await made.router.aclose(3.0)
    assert made.states == {"dropped(stopping)": 1}


async def test_events_and_options_are_those_of_the_flow() -> None:
    """The router hands a flow its own options, and knows no more of it."""
    seen: list[Any] = []

    async def curious(request: Any, effects: Any) -> Any:
        seen.append(request)
        async for event in FLOWS["legacy"](request, effects):
            assert isinstance(event, Event)
            yield event

    async with House(CASE, Rules(), legacy=curious) as made:
        await made.ask()
    assert seen[0].options == CASE.options
    assert seen[0].body == CASE.body
    assert msgspec.json.encode(CASE.options) == bytes(_options(made))


def _options(house: House) -> msgspec.Raw:
    request = house.runs[0].request
    assert request is not None
    return request.options


async def test_the_books_of_many_clients_at_once_balance() -> None:
    """Forty clients on both stacks, mirrored: each has its own stream, lock and lines."""
    rules = Rules(shadow=100, flow={"langgraph_percent": Decimal(50)})
    async with House(CASE, rules) as made:
        bodies = [named(f"m{number}") for number in range(40)]
        served = await asyncio.gather(*(made.client(body) for body in bodies))
    assert len({b"".join(one.wire) for one in served}) == 1
    assert made.states == {"compared(equal)": 40}
    assert made.world.count("model.stream") == 80
    assert {run.stack for run in made.runs if run.role == "serving"} == {"legacy", "graph"}
    assert asyncio.get_running_loop().time() < FOREVER
