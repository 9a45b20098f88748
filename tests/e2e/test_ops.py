"""The ops flow over HTTP: approvals in one request, sessions, and the model offline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract.workers import WorkerCall, WorkerResult, WorkerUpdate
from effects.local import SystemClock
from effects.workers import AuditedWorkers, MemoryAudit
from tests.e2e.ops import approval_of, react, resume, setup
from tests.support.deployment import Answer, Deployment, deployed, until

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


class Machine:
    """Workers that do nothing; a restart takes until it is `released`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.released = asyncio.Event()

    async def run(self, site: str, call: WorkerCall) -> AsyncIterator[WorkerUpdate]:
        """Carry out an instruction."""
        self.calls.append(f"{call.action} {call.args.get('name', '')}".strip())
        yield WorkerUpdate(f"{site}: {call.action}")
        data = None
        if call.action == "restart":
            await self.released.wait()
        if call.action == "list":
            data = [{"name": "web"}, {"name": "db"}]
        yield WorkerUpdate(result=WorkerResult(ok=True, message=f"{call.action} done", data=data))


def equipped(place: Deployment) -> tuple[Machine, MemoryAudit]:
    """Give a deployment workers and an audit log of the test's own."""
    machine, audit, router = Machine(), MemoryAudit(), place.services.router
    live = router.live
    workers = AuditedWorkers(machine, audit, SystemClock())
    router.live = lambda flow, body: replace(live(flow, body), workers=workers, audit=audit)
    return machine, audit


def problem(answer: Answer) -> tuple[int, str]:
    """Return what a request is refused with."""
    return answer.status, str(answer.problem["code"])


@pytest.mark.parametrize("percent", [0, 100], ids=["legacy", "graph"])
async def test_a_risky_instruction_is_approved_in_one_request(
    tmp_path: Path, percent: float
) -> None:
    """Of two at once one wins; afterwards it is over, and the session shows what there was."""
    async with deployed(tmp_path, setup(tmp_path, percent)) as place:
        machine, audit = equipped(place)
        session = "/ops/sessions/s"
        await place.ask({"message_id": "m", "chat_id": "s", "content": "restart web"})
        assert (await place.get(session))["code"] == "unknown_session"
        listed = await react(place, "list containers")
        assert listed.events[-1] == {"status": "completed"}
        approval = approval_of(await react(place, "restart the second one"))
        shown = await place.get(session)
        assert [one["role"] for one in shown["messages"]] == ["user", "assistant", "user"]
        assert shown["pending"] == {
            "approval_id": approval,
            "worker": "container",
            "action": "restart",
            "args": {"name": "db", "grace": 10},
            "risk": "critical",
        }
        assert machine.calls == ["list"]

        first = asyncio.create_task(resume(place, approval))
        await until(lambda: machine.calls == ["list", "restart db"])
        assert problem(await resume(place, approval)) == (409, "continued_already")
        assert "pending" not in await place.get(session)
        machine.released.set()
        assert (await first).events[-1] == {"status": "completed"}
        await place.settled()
        assert problem(await resume(place, approval)) == (409, "finished")
        refused = await resume(place, approval, approved=False)
        assert problem(refused) == (409, "answered_otherwise")
        assert problem(await resume(place, "another's")) == (404, "unknown_pause")
        assert machine.calls == ["list", "restart db"]
        assert [entry.event for entry in audit.entries][-3:] == [
            "requested",
            "approved",
            "executed",
        ]
        assert place.model_calls == 1  # of the chat
        assert place.books() == {"not_sampled()": 1, "compared(equal)": 3}  # the chat, and the rest


async def test_what_the_model_instructs_is_rejected_or_expires(tmp_path: Path) -> None:
    """The simulated provider instructs by the words of the request."""
    async with deployed(tmp_path, setup(tmp_path, 100)) as place:
        machine, audit = equipped(place)
        message = "I wonder about the disks; then restart web, if they are fine"
        first = await react(place, message)
        approval = approval_of(first)
        assert [event.get("action") for event in first.events[:3:2]] == ["disk", "disk"]
        rejected = await resume(place, approval, approved=False)
        assert rejected.events == [{"status": "rejected"}]
        assert machine.calls == ["disk"]
        overtaken = approval_of(await react(place, message))
        assert (await react(place, "hello")).events[-1] == {"status": "completed"}
        await place.settled()
        assert problem(await resume(place, overtaken)) == (410, "expired")
        assert machine.calls == ["disk", "disk"]
        by = {entry.by for entry in audit.entries if entry.event == "rejected"}
        assert by == {"ann"}
        kinds: set[Any] = {entry.event for entry in audit.entries}
        assert kinds == {"requested", "rejected", "executed"}
