"""Every operation of every port: performed for real, recorded, and the same when played."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from contract import ports
from contract.external import ExternalCall, ExternalResult, ExternalUpdate, PerformedCall
from contract.human import Form, HumanAnswer, OpenQuestion
from contract.operations import OPERATIONS, Operation
from contract.stores import FindNear, MemoryEntry, Reading, Recall, Revision
from contract.workers import WorkerCall, WorkerResult, WorkerUpdate
from effects.local import ScriptedHuman
from effects.model import Wait, says
from effects.tape import NodeTimes, Tape
from effects.testing import World
from effects.tools.fake import ScriptedTools
from effects.workers import ScriptedWorkers
from tests.support.records import an_audit_entry
from tests.support.tape_calls import TURN, live, said, tool

if TYPE_CHECKING:
    from contract.ports import Effects

pytestmark = pytest.mark.virtual

DISKS = WorkerResult(ok=True, message="two disks", data=[{"disk": "/", "used": 0.4}, None])
ENTRY = MemoryEntry(memory_id="f-1", user_id="u", text="likes tea")
READING = Reading(user_id="u", flow="session", session_id="s")


INSERTED = ExternalUpdate(result=ExternalResult({"id": 7}))


def _inserting() -> ExternalCall:
    async def perform() -> AsyncIterator[ExternalUpdate]:
        yield ExternalUpdate("connected")
        yield INSERTED

    return PerformedCall.made({"order": 1}, "", perform)


async def everything(effects: Effects) -> list[Any]:
    """Call every operation there is once and gather what it gave."""
    await effects.locks.release("message", "key")
    await effects.audit.append("audit", an_audit_entry())
    hitl_id = await effects.human.open("ask", OpenQuestion(Form("Sure?", ())))
    return [
        await said(effects),
        await effects.model.lookup("model", "m"),
        await effects.model.count("tokens", "m", ("a", "bc")),
        await effects.tools.list("offer"),
        await effects.tools.run("tool", tool("dice")),
        await effects.memory.write("keep", (ENTRY,)),
        await effects.memory.recall("recall", Recall(user_id="u", query="tea")),
        await effects.memory.near("known", FindNear("u", ("tea", "cake"))),
        await effects.memory.write("learn", (), Revision(reading=READING, message_id="m-1")),
        await effects.memory.progress("learn", READING),
        await effects.conversations.put("message", TURN),
        await effects.conversations.find("message", "m-1"),
        await effects.conversations.history("history", "c", before="m-1", limit=5),
        await effects.locks.acquire("message", "key", 60.0),
        await effects.clock.now("prompt"),
        await effects.ids.new("reply"),
        await effects.human.answer("ask", hitl_id),
        [update async for update in effects.external.read("orders", _inserting())],
        [update async for update in effects.external.run("orders", _inserting())],
        [update async for update in effects.workers.run("execute", WorkerCall("system", "disks"))],
    ]


async def test_every_operation_gives_the_same_live_and_played() -> None:
    """Through JSON and back; and the world is not touched a second time."""
    world = World(
        says("Hi"),
        tools=ScriptedTools({"dice": "4"}),
        human=ScriptedHuman([HumanAnswer("approve")]),
        workers=ScriptedWorkers({"system.disks": ("reading", Wait(1.0), DISKS)}),
    )
    async with live(world) as it:
        performed = await everything(it.effects)
    recorded = it.exchange.tape
    assert {entry.operation for entry in recorded.entries} == set(OPERATIONS.values())
    nothing = World()
    run = nothing.run(nothing.exchange(Tape.load(recorded.record())), "fail")
    assert await everything(run.effects()) == performed
    assert nothing.made == []
    assert datetime(2026, 1, 1, tzinfo=UTC) in performed
    assert performed[-1] == [WorkerUpdate("reading"), WorkerUpdate(result=DISKS, at=1_000_000)]
    assert world.workers.calls == world.workers.ended == [WorkerCall("system", "disks")]
    assert world.audit.entries == (an_audit_entry(),)


async def test_time_spent_in_nodes_is_summed_by_name_and_not_on_the_tape() -> None:
    """A node that fails has taken its time as well."""
    async with live() as it:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError), it.effects.trace.node("model"):
                raise ZeroDivisionError
        assert list(it.run.trace.spent) == ["model"]
        assert it.exchange.tape.entries == []


async def test_nodes_are_listed_as_they_open_and_the_total_ends_with_the_last() -> None:
    """Of two that are open at once each counts in full; the total counts that time once."""
    moments = iter(range(0, 9_000_000, 1_000_000))
    times = NodeTimes(lambda: next(moments))
    with times.node("outer"), times.node("inner"):
        pass
    assert (list(times.spent.items()), times.total) == ([("outer", 3_000), ("inner", 1_000)], 4_000)
    with times.node("inner"):
        pass
    assert (list(times.spent.items()), times.total) == ([("outer", 3_000), ("inner", 2_000)], 6_000)


PROTOCOLS = {port: getattr(ports, port.capitalize()) for port, _ in OPERATIONS}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda one: one.label)
def test_the_table_agrees_with_the_ports(operation: Operation) -> None:
    """A row takes what its method takes: the arguments' fields by name, or the struct alone."""
    method = inspect.signature(getattr(PROTOCOLS[operation.port], operation.name))
    _, site, *parameters = method.parameters.values()
    assert site.name == "site"
    if operation.whole:
        assert [str(one.annotation) for one in parameters] == [operation.arguments.__name__]
    else:
        fields = operation.arguments.__struct_fields__
        assert tuple(one.name for one in parameters) == fields
        assert operation.named == tuple(
            one.name for one in parameters if one.kind is one.KEYWORD_ONLY
        )


def test_every_method_of_a_port_is_an_operation() -> None:
    """And the other way round."""
    methods = {
        (port, name)
        for port, protocol in PROTOCOLS.items()
        for name, _ in inspect.getmembers(protocol, inspect.isfunction)
        if not name.startswith("_")
    }
    assert methods == set(OPERATIONS)
