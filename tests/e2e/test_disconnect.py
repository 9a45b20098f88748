"""The client leaves: on a real socket, on both stacks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from contract.flows.chat import ChatRequest
from effects.tools import ToolContext, tool
from router.serving.stack import LocalStack
from router.stack import StackName
from tests.support.deployment import Deployment, Setup, deployed, tasks, until
from tests.support.faulty_stacks import begins_and_hangs

STACKS: tuple[StackName, ...] = ("legacy", "graph")
SLOW = {"model_config": {"model_id": "slow"}}
pytestmark = [pytest.mark.sockets, pytest.mark.untraced]


class Nothing(msgspec.Struct):
    """Arguments of a tool that takes none."""


class Machine:
    """A tool the simulated provider calls when it is asked for `no such tool`."""

    def __init__(self, *, read_only: bool) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.ended = ""

        @tool("no_such_tool", "Works until it is told to stop.", Nothing, read_only=read_only)
        async def work(_: Nothing, __: ToolContext) -> str:
            self.begun.set()
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.ended = "cancelled"
                raise
            self.ended = "finished"
            return "done"

        self.tool = work


async def leave_after(place: Deployment, body: object, step: bytes) -> None:
    """Read up to a frame that holds `step`, then drop the connection."""
    async with place.post(body) as response:
        while step not in await response.content.readline():
            pass
        response.close()


@pytest.mark.parametrize("stack", STACKS)
async def test_leaving_stops_the_model_and_frees_the_lock(tmp_path: Path, stack: StackName) -> None:
    """The provider notices; no task is left; the same message is served again."""
    async with deployed(tmp_path, Setup(stack=stack)) as place:
        body = {"message_id": "m", "content": "Tell me a story."}
        before = asyncio.all_tasks()
        await leave_after(place, body | SLOW, b"SEND")
        await place.provider.ledger.until("cancelled", 1)
        await until(lambda: not asyncio.all_tasks() - before)
        await until(lambda: place.services.router.counts.disconnected == 1)
        again = await place.ask(body)
        assert again.steps == ["ACCEPT", "START_REPLY", "SEND", "SUCCESS", "END"]


@pytest.mark.parametrize("stack", STACKS)
async def test_leaving_is_on_record_and_stores_nothing(tmp_path: Path, stack: StackName) -> None:
    """The ledger says `cancelled(client_left)`, the capture too; no partial reply is kept."""
    async with deployed(tmp_path, Setup(stack=stack, shadow=100)) as place:
        body = {"message_id": "m", "chat_id": "c", "content": "Hello"}
        await leave_after(place, body | SLOW, b"SEND")
        run = await place.run()
        assert (run.outcome, run.error and run.error.code) == ("cancelled", "client_left")
        ends = {f"{entry.port}.{entry.op}": entry.end for entry in run.tape or ()}
        assert ends["model.stream"] == "cut"
        assert "ids.new" not in ends, "an id is drawn for a reply only"
        assert place.books() == {"cancelled(client_left)": 1}
        history = place.services.router.live("chat", ChatRequest(message_id="n")).conversations
        turns = await history.history("test", "c", before="n", limit=10)
        assert [turn.role for turn in turns] == ["user"]


@pytest.mark.parametrize("stack", STACKS)
async def test_leaving_before_the_first_frame_is_no_error(
    tmp_path: Path, stack: StackName, caplog: pytest.LogCaptureFixture
) -> None:
    """The stack still waits for something when the client gives up."""
    begun = asyncio.Event()

    stacks = {name: LocalStack(name, {"chat": begins_and_hangs(begun)}, "") for name in STACKS}
    async with deployed(tmp_path, Setup(stack=stack, stacks=stacks)) as place:
        asking = asyncio.ensure_future(place.ask({"message_id": "m", "content": "Hello"}))
        await begun.wait()
        asking.cancel()
        await asyncio.wait({asking})
        run = await place.run()
        assert (run.outcome, run.frames) == ("cancelled", ())
        assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("stack", STACKS)
async def test_a_started_tool_that_writes_finishes_and_is_recorded(
    tmp_path: Path, stack: StackName
) -> None:
    """What has begun to change the world is not given up half-way."""
    machine = Machine(read_only=False)
    async with deployed(tmp_path, Setup(stack=stack)) as place:
        await leave_at_work(place, machine)
        await until(lambda: bool(tasks("close")))
        machine.go_on.set()
        run = await place.run()
        assert machine.ended == "finished"
        (entry,) = [entry for entry in run.tape or () if entry.op == "run"]
        assert entry.end == "complete"
        assert b"done" in bytes(entry.items[0])
        assert run.outcome == "cancelled"


@pytest.mark.parametrize("stack", STACKS)
async def test_a_started_tool_that_only_reads_dies(tmp_path: Path, stack: StackName) -> None:
    """Its answer has no reader any more."""
    machine = Machine(read_only=True)
    async with deployed(tmp_path, Setup(stack=stack)) as place:
        await leave_at_work(place, machine)
        run = await place.run()
        assert machine.ended == "cancelled"
        (entry,) = [entry for entry in run.tape or () if entry.op == "run"]
        assert entry.end == "cut"


async def leave_at_work(place: Deployment, machine: Machine) -> None:
    """Let a machine be called, and leave while it works."""
    place.services.live.tools.register(machine.tool)
    body = {"message_id": "m", "content": "Please call no such tool."}
    async with place.post(body) as response:
        await machine.begun.wait()
        response.close()


@pytest.mark.parametrize("stack", STACKS)
async def test_leaving_after_the_terminal_frame_is_no_cancel(
    tmp_path: Path, stack: StackName
) -> None:
    """A client that has read END was served."""
    async with deployed(tmp_path, Setup(stack=stack, shadow=100)) as place:
        await leave_after(place, {"message_id": "m", "content": "Hello"}, b'"END"')
        await place.lines()
        assert place.books() == {"compared(equal)": 1}
        assert place.services.router.counts.disconnected == 0


@pytest.mark.slow
async def test_many_leave_at_once(tmp_path: Path) -> None:
    """Thirty clients of both stacks leave; thirty model calls end, nothing is left."""
    async with deployed(tmp_path, Setup(shadow=100)) as place:
        text = place.watched.path.read_text("utf-8")
        place.edit(text.replace("langgraph_percent = 0", "langgraph_percent = 50"))
        before = asyncio.all_tasks()
        leaving = (
            leave_after(place, {"message_id": f"m{n}", "content": "Hello"} | SLOW, b"SEND")
            for n in range(30)
        )
        await asyncio.gather(*leaving)
        await place.provider.ledger.until("cancelled", 30)
        await until(lambda: not asyncio.all_tasks() - before)
        runs = await place.lines()
        assert {run.stack for run in runs} == {"legacy", "graph"}
        assert {run.outcome for run in runs} == {"cancelled"}
        assert place.books() == {"cancelled(client_left)": 30}
