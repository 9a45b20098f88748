"""Approvals: one for each risky instruction, on either stack, and nothing is carried out twice."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from contract.errors import EffectFailed, Fault
from contract.flow import Flow
from contract.flows.ops import OPS, OpsOptions
from contract.human import HumanAnswer
from contract.workers import WorkerCall
from cutover.wiring.sessions import StoredSessions
from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from router.problems import Problem
from router.stack import StackName
from tests.router.resume.test_pauses import BOTH
from tests.support.faulty_stacks import after, crash
from tests.support.ops_turns import (
    DISK,
    FINAL,
    RESTART,
    OpsDesk,
    Shift,
    approval_id,
    shift,
    steps,
)
from tests.support.pausing_flow import Reply

pytestmark = pytest.mark.virtual
both = pytest.mark.parametrize(("first", "then"), BOTH)
each = pytest.mark.parametrize("stack", ["legacy", "graph"])

FLOWS: dict[str, Flow] = {"legacy": LEGACY["ops"], "graph": GRAPH["ops"]}
ASKED = shift("restart web")
RESTARTED = WorkerCall("container", "restart", {"name": "web", "grace": 10})
DB = RESTART.replace("web", "db")
REST = ["progress", "progress", "result", "final", "done"]


def names(reply: Reply) -> list[str]:
    """Name the events of a reply."""
    return [event["type"] for event in reply.events]


async def paused_at(desk: OpsDesk, stack: StackName, message: str = "restart web") -> str:
    """Take a turn on a stack, to its approval."""
    desk.assigned = stack
    reply = await desk.react(message)
    assert reply.events[-1] == {"type": "done", "status": "approval_required"}
    assert names(reply)[-3:-1] == ["step", "approval_required"]
    return approval_id(reply)


def restarted(desk: OpsDesk, stack: StackName) -> None:
    """Restart the router, which assigns to a stack from now on."""
    desk.assigned = stack
    desk.start()


@both
async def test_an_approved_instruction_is_carried_out_on_either_stack(
    first: StackName, then: StackName
) -> None:
    """Once, after a restart, and the log names who approved it."""
    desk = OpsDesk(ASKED)
    asked = await paused_at(desk, first)
    assert desk.world.workers.calls == []
    restarted(desk, then)
    rest = await desk.decide(asked)
    assert names(rest) == REST
    assert rest.events[-1]["status"] == "completed"
    assert rest.stream is not None
    assert rest.stream.served_by.name == then
    assert desk.world.workers.calls == [RESTARTED]
    assert desk.audited == [
        ("requested", "restart", ""),
        ("approved", "restart", "ann"),
        ("executed", "restart", "ann"),
    ]


@both
async def test_a_rejected_instruction_executes_nothing(first: StackName, then: StackName) -> None:
    """Nor what follows it in its step; the session goes on without it."""
    desk = OpsDesk(shift("hm", steps(RESTART, DISK)))
    asked = await paused_at(desk, first, "hm")
    restarted(desk, then)
    rest = await desk.decide(asked, approved=False, by="bob")
    assert rest.events == [{"type": "done", "status": "rejected"}]
    assert desk.world.workers.calls == []
    assert desk.audited[-1] == ("rejected", "restart", "bob")
    assert desk.house.conversations.turns[-1].content == "container.restart 被拒绝，没有执行。"


@each
async def test_approving_twice_executes_once(stack: StackName) -> None:
    """One after the other, or at once: one wins, and a different decision is refused."""
    desk = OpsDesk(ASKED)
    asked = await paused_at(desk, stack)
    going = (desk.decide(asked), desk.decide(asked), desk.decide(asked, approved=False))
    replies = await asyncio.gather(*going, return_exceptions=True)
    refused = sorted((one.status, one.code) for one in replies if isinstance(one, Problem))
    assert refused == [(409, "answered_otherwise"), (409, "continued_already")]
    with pytest.raises(Problem) as again:
        await desk.decide(asked)
    assert (again.value.status, again.value.code) == (409, "finished")
    assert desk.world.workers.calls == [RESTARTED]
    assert [event for event, *_ in desk.audited].count("approved") == 1


@both
async def test_an_approval_is_no_good_for_another_instruction(
    first: StackName, then: StackName
) -> None:
    """Each risky one asks by itself, with an id of its own; the first id approves nothing more."""
    desk = OpsDesk(shift("hm", steps(DISK, RESTART, DB), FINAL))
    asked = await paused_at(desk, first, "hm")
    restarted(desk, then)
    second = await desk.decide(asked)
    assert names(second)[-3:] == ["step", "approval_required", "done"]
    other = approval_id(second)
    assert other != asked
    assert [call.args.get("name") for call in desk.world.workers.calls] == [None, "web"]
    with pytest.raises(Problem) as refused:
        await desk.decide(asked)
    assert refused.value.code == "finished"
    with pytest.raises(Problem) as early:
        await desk.go_on(other)
    assert early.value.code == "unanswered"
    assert len(desk.world.workers.calls) == 2
    restarted(desk, first)
    await desk.decide(other, approved=False)
    assert len(desk.world.workers.calls) == 2


@each
async def test_an_answer_that_changes_the_instruction_approves_nothing(stack: StackName) -> None:
    """Whoever writes it into the store: it is for the instruction in the form, as it stands."""
    desk = OpsDesk(ASKED)
    asked = await paused_at(desk, stack)
    edited = HumanAnswer("approve", {"args": '{"name":"db"}'}, by="eve")
    await desk.router.respond(OPS, asked, edited)
    rest = await desk.go_on(asked)
    assert rest.events == [{"type": "done", "status": "rejected"}]
    assert desk.world.workers.calls == []


@each
async def test_a_late_decision_and_one_a_new_turn_overtook_are_refused(stack: StackName) -> None:
    """With 410; an id that nobody drew with 404."""
    desk = OpsDesk(ASKED)
    asked = await paused_at(desk, stack)
    await desk.react("check the disks")
    for decided, status in ((asked, 410), ("another's", 404)):
        with pytest.raises(Problem) as refused:
            await desk.decide(decided)
        assert refused.value.status == status
    late = await paused_at(desk, stack)
    await asyncio.sleep(86_401)
    with pytest.raises(Problem) as expired:
        await desk.decide(late)
    assert (expired.value.status, expired.value.code) == (410, "expired")
    assert RESTARTED not in desk.world.workers.calls


@both
async def test_a_client_that_leaves_midway_repeats_no_instruction(
    first: StackName, then: StackName
) -> None:
    """The same decision again continues the stream: what has begun runs to its end, once."""
    desk = OpsDesk(ASKED)
    asked = await paused_at(desk, first)
    left = await desk.decide(asked, leaves=1)
    assert names(left) == ["progress"]
    restarted(desk, then)
    rest = await desk.decide(asked)
    assert names(rest) == REST
    assert desk.world.workers.calls == desk.world.workers.ended == [RESTARTED]
    assert [event for event, *_ in desk.audited] == ["requested", "approved", "executed"]


@each
async def test_where_nobody_can_approve_risky_instructions_are_refused(stack: StackName) -> None:
    """By the option, or because the question cannot be stored; the model is told."""

    async def unstored(*_: object) -> bool:
        return False

    for options, stored in ((OpsOptions(approvals="refuse"), True), (OpsOptions(), False)):
        desk = OpsDesk(Shift(body=ASKED.body, options=options))
        desk.assigned = stack
        if not stored:
            desk.pauses.open = unstored  # type: ignore[method-assign,assignment] # out of order
        reply = await desk.react()
        assert names(reply) == ["step", "result", "final", "done"]
        assert reply.events[1]["ok"] is False
        assert desk.world.workers.calls == []
        assert desk.audited[-1] == ("refused", "restart", "")
        told = str(desk.world.model.calls[-1][1].messages[-1].content)
        assert "no_approver" in told


@each
async def test_nothing_is_executed_while_the_log_cannot_be_written(stack: StackName) -> None:
    """The turn fails before, and says why."""

    class Away:
        async def append(self, site: str, entry: object) -> None:
            raise EffectFailed(Fault("audit_unavailable", data={"site": f"{site} {entry!r:.9}"}))

    world = shift("check the disks and memory").world()
    exchange = world.exchange(live=world.live(audit=Away()))
    found = FLOWS[stack](shift("check the disks and memory").request, world.run(exchange).effects())
    frames = [OPS.encode(event) async for event in found]
    await exchange.close()
    assert [frame.split(b"\n")[0] for frame in frames] == [b"event: error", b"event: done"]
    assert b"audit_unavailable" in frames[0]
    assert world.workers.calls == []


@each
async def test_the_shadow_is_equal_before_and_after_a_pause(stack: StackName) -> None:
    """And no worker is called for it."""
    desk = OpsDesk(ASKED)
    desk.shadow = Decimal(100)
    asked = await paused_at(desk, stack)
    await desk.decide(asked)
    states = {(line.state, line.reason): n for line, n in desk.router.ledger.counts.items()}
    assert states == {("compared", "equal"): 2}
    assert desk.world.workers.calls == [RESTARTED]


@pytest.mark.parametrize("frames", range(1, 7))
@each
async def test_a_crash_before_or_after_the_approval_is_taken_over(
    stack: StackName, frames: int
) -> None:
    """By the other stack; the worker is called once."""
    desk = OpsDesk(ASKED, **{stack: after(FLOWS[stack], frames, crash)})
    asked = await paused_at(desk, stack)
    rest = await desk.decide(asked)
    assert names(rest) == REST
    assert desk.world.workers.calls == [RESTARTED]


@each
async def test_a_session_shows_what_waits(stack: StackName) -> None:
    """Its messages, where it stands, and the approval, until that is decided."""
    desk = OpsDesk(shift("hm", steps(DISK), steps(RESTART), FINAL))
    live: Any = desk.house
    sessions = StoredSessions(live, {}, desk.pauses, flow="ops")
    call = OPS.store_endpoints[0].perform
    asked = await paused_at(desk, stack, "hm")
    waits: Any = await call(sessions, {"session_id": "s"})
    assert (waits.iteration, [one.content for one in waits.messages]) == (2, ["hm"])
    assert (waits.pending.approval_id, waits.pending.args) == (asked, RESTARTED.args)
    await desk.decide(asked)
    over: Any = await call(sessions, {"session_id": "s"})
    assert (over.iteration, bool(over.pending)) == (3, False)
    assert [one.content for one in over.messages] == ["hm", "all done"]


async def test_the_next_turn_knows_the_first_one() -> None:
    """Of the last result, on the other stack, after a restart."""
    desk = OpsDesk(shift("list containers"))
    await desk.react("list containers")
    restarted(desk, "graph")
    asked = await paused_at(desk, "graph", "重启第一个")
    await desk.decide(asked)
    assert desk.world.workers.calls[-1] == RESTARTED
    assert desk.world.count("model.stream") == 0
