"""The audit log of a turn: each step of each instruction, once, also where the client leaves."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from contract.errors import EffectFailed, Fault
from contract.workers import AuditEntry
from effects.workers import MemoryAudit
from router.stack import StackName
from tests.support.flow_runs import play
from tests.support.ops_turns import FINAL, RESTART, WORKERS, YES, House, OpsDesk, shift, steps

pytestmark = pytest.mark.virtual
each = pytest.mark.parametrize("stack", ["legacy", "graph"])


@each
@pytest.mark.parametrize("shadow", [0, 100])
async def test_what_ends_after_its_client_has_left_is_in_the_log(
    stack: StackName, shadow: int
) -> None:
    """Once, with what came of it, though no run is there any more and none comes back."""
    desk = OpsDesk(shift("check the disks and memory"))
    desk.assigned, desk.shadow = stack, Decimal(shadow)
    left = await desk.react("check the disks and memory", leaves=1)
    assert [event["type"] for event in left.events] == ["step"]
    await asyncio.sleep(60)
    assert len(desk.world.workers.ended) == len(desk.world.workers.calls) == 2
    assert desk.audited == [
        ("requested", "disk", ""),
        ("requested", "memory", ""),
        ("executed", "memory", ""),
        ("executed", "disk", ""),
    ]


@each
async def test_an_approved_instruction_whose_client_leaves_is_in_the_log(stack: StackName) -> None:
    """Also if the rest is never asked for; asking for it repeats nothing."""
    desk = OpsDesk(shift("restart web"))
    desk.assigned = stack
    asked = await desk.react()
    approval = str(asked.events[-2]["approval_id"])
    await desk.decide(approval, leaves=1)
    await asyncio.sleep(60)
    whole = [
        ("requested", "restart", ""),
        ("approved", "restart", "ann"),
        ("executed", "restart", "ann"),
    ]
    assert desk.audited == whole
    rest = await desk.decide(approval)
    assert rest.events[-1] == {"type": "done", "status": "completed"}
    assert desk.audited == whole


@each
async def test_the_entries_of_an_instruction_begin_alike(stack: str) -> None:
    """A reader sees which decision and which results belong to which request."""
    deploy = '{"worker":"deploy","action":"run"}'
    turn = shift("hm", steps(RESTART, deploy), FINAL, human=(YES, YES))
    await play(stack, turn)
    entries = turn.house.audit.entries
    first, *_ = [one.entry_id for one in entries if one.event == "requested"]
    assert [one.entry_id.removeprefix(first) for one in entries[:3]] == [
        "",
        ".approved.restart",
        ".executed.restart",
    ]
    second = entries[3].entry_id
    assert [one.entry_id.removeprefix(second) for one in entries[3:]] == [
        *("", ".approved.run", ".executed.plan"),
        *(".executed.build", ".executed.release", ".executed.verify"),
    ]


class BusyLog(MemoryAudit):
    """A log that does not take an entry of what was executed at first."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[AuditEntry] = []

    async def append(self, site: str, entry: AuditEntry) -> None:
        """Append an entry."""
        if entry.event == "executed" and not self.refused:
            self.refused.append(entry)
            raise EffectFailed(Fault("audit_unavailable"))
        await super().append(site, entry)


@each
async def test_a_log_that_was_busy_is_written_by_the_flow(stack: str) -> None:
    """With the same entry; the turn goes on."""
    log = BusyLog()
    turn = shift("check the disks", house=House(audit=log), workers=WORKERS)
    played = await play(stack, turn)
    assert played.wire.endswith('"completed"}\n\n')
    assert [entry.event for entry in log.entries] == ["requested", "executed"]
    assert log.entries[1] == log.refused[0]


@each
async def test_a_fault_of_a_worker_is_in_the_log_once(stack: str) -> None:
    """By its port and by the flow, which are of one mind."""
    turn = shift("can db:80 be reached?")
    await play(stack, turn)
    entries = turn.house.audit.entries
    assert [(one.event, one.ok, one.code) for one in entries] == [
        ("requested", None, ""),
        ("executed", False, "worker_unavailable"),
    ]
