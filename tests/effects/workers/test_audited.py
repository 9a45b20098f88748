"""What came of an instruction is in the log before any run reads it, however it ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from contract.errors import CutoverError, EffectFailed, Fault
from contract.ports import Audit, Workers
from contract.workers import AuditContext, AuditEntry, WorkerCall, WorkerResult, WorkerUpdate
from effects.local import ManualClock
from effects.model import Fail, Hang, Wait
from effects.tape import Entry
from effects.tasks import ended
from effects.testing import World
from effects.workers import AuditedWorkers, MemoryAudit, ScriptedWorkers, WorkerStep

pytestmark = pytest.mark.virtual

CONTEXT = AuditContext("e-1", "s", "high", "ann")
CALL = WorkerCall("container", "restart", {"name": "web"}, CONTEXT)
DONE = WorkerResult(ok=True, message="restarted", code="", data={"name": "web"})
ENTRY = AuditEntry(
    entry_id="e-1",
    at="2026-01-01T00:00:00.000Z",
    session_id="s",
    event="executed",
    worker="container",
    action="restart",
    args={"name": "web"},
    risk="high",
    by="ann",
    ok=True,
)


def audited(workers: Workers, audit: Audit) -> AuditedWorkers:
    """Wrap workers, with a clock that stands still."""
    return AuditedWorkers(workers, audit, ManualClock())


def scripted(*steps: WorkerStep) -> ScriptedWorkers:
    """Return workers whose only action takes these steps."""
    return ScriptedWorkers({"container.restart": steps})


async def read(workers: Workers, call: WorkerCall = CALL) -> list[WorkerUpdate]:
    """Read all updates of a call."""
    return [update async for update in workers.run("execute", call)]


async def test_a_result_is_logged_before_it_is_read() -> None:
    """The worker itself is called without what is for the log."""
    log, workers = MemoryAudit(), scripted("stopping", Wait(1), DONE)
    updates = audited(workers, log).run("execute", CALL)
    seen = [(update.progress, update.audited, log.entries) async for update in updates]
    assert seen == [("stopping", False, ()), ("", True, (ENTRY,))]
    assert workers.calls == [WorkerCall("container", "restart", {"name": "web"})]


async def test_a_call_that_says_nothing_for_the_log_is_not_logged() -> None:
    """Its result does not say that it were."""
    log = MemoryAudit()
    updates = await read(audited(scripted(DONE), log), WorkerCall("container", "restart"))
    assert updates == [WorkerUpdate(result=DONE)]
    assert log.entries == ()


@pytest.mark.parametrize(
    ("steps", "code"),
    [((Fail(Fault("worker_unavailable")),), "worker_unavailable"), (("…",), "adapter_failed")],
)
async def test_an_instruction_without_a_result_is_logged_with_a_code(
    steps: tuple[WorkerStep, ...], code: str
) -> None:
    """It may have done something."""
    log = MemoryAudit()
    with suppress(EffectFailed):
        assert all(update.result is None for update in await read(audited(scripted(*steps), log)))
    assert [(one.event, one.ok, one.code) for one in log.entries] == [("executed", False, code)]


class Closed(CutoverError):
    """Something is closed already."""

    def __init__(self) -> None:
        super().__init__("closed")


class BrokenAudit:
    """A log that cannot be written, by whichever error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def append(self, site: str, entry: AuditEntry) -> None:
        """Fail."""
        del site, entry
        raise self._error


@pytest.mark.parametrize("error", [EffectFailed(Fault("audit_unavailable")), Closed()])
async def test_a_log_that_cannot_be_written_costs_no_result(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The result is not said to be audited: the flow will try."""
    assert await read(audited(scripted(DONE), BrokenAudit(error))) == [WorkerUpdate(result=DONE)]
    assert "container.restart is not in the audit log" in caplog.text


class SlowAudit(MemoryAudit):
    """A log that takes a second for an entry."""

    async def append(self, site: str, entry: AuditEntry) -> None:
        """Append an entry."""
        await asyncio.sleep(1)
        await super().append(site, entry)


@pytest.mark.parametrize(
    ("steps", "seconds", "expected"),
    [(("stopping", Hang()), 2.0, (False, "deadline")), ((Wait(2), DONE), 2.5, (True, ""))],
    ids=["at work", "while it is logged"],
)
async def test_a_call_that_is_cancelled_is_logged(
    steps: tuple[WorkerStep, ...], seconds: float, expected: tuple[bool, str]
) -> None:
    """By its deadline say, and once: with what came of it, if that was known."""
    log = SlowAudit()
    task = asyncio.create_task(read(audited(scripted(*steps), log)))
    await asyncio.sleep(seconds)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ended(task)
    assert [(one.ok, one.code) for one in log.entries] == [expected]


async def test_a_call_that_nothing_reads_any_more_is_logged() -> None:
    """Once it has ended: the exchange reads what its runs have left."""
    world = World(workers=scripted("stopping", Wait(3), DONE))
    exchange = world.exchange()
    run = world.run(exchange)
    assert (await anext(run.effects().workers.run("execute", CALL))).progress == "stopping"
    run.fence()
    await exchange.close()
    assert world.audit.entries == (ENTRY,)


async def test_what_changes_nothing_may_be_made_again_after_a_kill() -> None:
    """It is journalled as not begun; anything else has an unknown outcome, by its table."""
    begun: dict[str, bool] = {}

    class Noting:
        async def begin(self, entry: Entry, /) -> bool:
            begun[entry.operation.subject(entry.args)] = entry.begun
            return True

        async def end(self, entry: Entry, /) -> None:
            assert entry.known_end == "complete"

    actions = {"system.large_files": (DONE,), "container.restart": (DONE,), "shell.run": (DONE,)}
    world = World(workers=ScriptedWorkers(actions))
    exchange = world.exchange(journal=Noting())
    effects = world.run(exchange).effects()
    for name in actions:
        worker, _, action = name.partition(".")
        await read(effects.workers, WorkerCall(worker, action))
    await exchange.close()
    assert begun == {"system.large_files": False, "container.restart": True, "shell.run": True}


async def test_the_worker_is_closed_after_its_result() -> None:
    """What it does there changes nothing."""
    order: list[str] = []

    class Tidy:
        async def run(self, site: str, call: WorkerCall) -> AsyncIterator[WorkerUpdate]:
            del site, call
            try:
                yield WorkerUpdate(result=DONE)
            finally:
                order.append("closed")

    async for update in audited(Tidy(), MemoryAudit()).run("execute", CALL):
        assert update.audited
        order.append("read")
    assert order == ["read", "closed"]
