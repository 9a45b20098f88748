"""A ramp on a real deployment: the router, a simulated provider, its captures and the real gate."""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from contract.ports import Effects
from cutover.cli import main
from cutover.cli.operate.ramp import RampPlace
from cutover.ramp.flags import FileFlags
from cutover.ramp.machine import Flags, Plan, RampState, begin
from cutover.ramp.runner import Ramp
from cutover.ramp.state import StateFile
from cutover.wiring.stacks import load_stacks
from graph_impl import FLOWS as GRAPH
from router.serving.stack import LocalStack
from tests.support.deployment import Deployment, Setup, deployed, until
from tests.support.faulty_stacks import Boom, after
from tests.support.ramps import RampTime

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.untraced]

PLAN = Plan(steps=(25.0, 50.0, 100.0), hold=120.0, passes=2, interval=60.0)
TIMES = ("ttfe_p50", "ttfe_p95", "ttft_p50", "ttft_p95", "e2e_p50", "e2e_p95", "gap_p95")
AT_ONCE = 10
GATE = f"""
[admin]
audit_path = "FOLDER/audit.jsonl"
[breaker]
least_requests = 100_000
[gate]
requests = 20
pairs = 10
selftest = false
critical = ["failures"]
margins = {{ failures = 0.4, {", ".join(f"{name} = 50.0" for name in TIMES)} }}
[ramp]
state = "FOLDER/ramp"
"""


class Rollout:
    """A deployment whose graph stack breaks on demand, and its ramp with a clock one moves."""

    def __init__(self, place: Deployment, fault: list[bool], percent: float) -> None:
        self.place, self.fault = place, fault
        self.time = RampTime(time=1.0)
        self.asked = 0
        path = place.watched.path
        self.writer = FileFlags(path, "chat", "test")
        self.file = StateFile(place.folder / "ramp", "chat")
        self.file.folder.mkdir()
        # All captures are of this test: by the moved clock they would be from before the step.
        decide = RampPlace("chat", path, None, None).decider(self.writer)
        state = begin("chat", Flags(enabled=True, percent=percent), self.time.now())
        parts = (state, PLAN, self.writer, self.file, lambda to, _: decide(to, None), self.time)
        self.ramp = Ramp(*parts)

    async def serve(self, count: int) -> None:
        """Send messages, until each is captured."""
        first = self.asked
        self.asked += count
        for number in range(first, self.asked, AT_ONCE):
            bodies = [
                {"message_id": f"m{one}", "content": "Hello"}
                for one in range(number, min(number + AT_ONCE, self.asked))
            ]
            answers = await asyncio.gather(*map(self.place.ask, bodies))
            assert {one.status for one in answers} == {200}
        await self.place.lines()

    async def look(self) -> RampState:
        """Let an interval pass, look, and let the router see the file."""
        self.time.wait(PLAN.interval)
        state = await asyncio.to_thread(self.ramp.look)
        self.place.edit(self.place.watched.path.read_text("utf-8"))
        return state

    async def looks(self, count: int) -> RampState:
        """Look a few times."""
        for _ in range(count - 1):
            await self.look()
        return await self.look()


def setup(folder: Path, fault: list[bool], percent: float) -> Setup:
    """Return a deployment with a graph stack that breaks while `fault` holds true."""

    async def act(_: Effects) -> None:
        if fault[0]:
            raise Boom

    stacks = load_stacks()
    graph = LocalStack("graph", {**GRAPH, "chat": after(GRAPH["chat"], 0, act)}, "g")
    return Setup(
        percent=percent,
        shadow=100,
        stacks={**stacks, "graph": graph},
        more=GATE.replace("FOLDER", str(folder)),
    )


async def test_equal_stacks_reach_everything(tmp_path: Path) -> None:
    """From shadows alone to 100 %, each step by the gate's own verdict on real captures."""
    fault = [False]
    async with deployed(tmp_path, setup(tmp_path, fault, 0)) as place:
        rollout = Rollout(place, fault, 0.0)
        assert (await rollout.look()).detail.startswith("paused: ")
        await rollout.serve(30)
        state = await rollout.looks(2)
        assert state.flags.percent == 25.0, state
        await rollout.serve(140)
        state = await rollout.looks(2)
        assert state.flags.percent == 50.0, state
        await rollout.serve(80)
        state = await rollout.looks(2)
        assert state.flags.percent == 100.0, state
        assert place.watched.settings().flows["chat"].stage == "full"
        assert (await rollout.looks(2)).phase == "done"


async def test_a_fault_at_a_quarter_is_off_within_one_interval(tmp_path: Path) -> None:
    """Clients see nothing of it, for legacy takes over; the next look switches graph off."""
    fault = [False]
    async with deployed(tmp_path, setup(tmp_path, fault, 25)) as place:
        rollout = Rollout(place, fault, 25.0)
        await rollout.serve(60)
        assert (await rollout.look()).phase == "running"
        fault[0] = True
        await rollout.serve(140)
        state = await rollout.look()
        assert state.phase == "rolled_back", state
        assert state.look is not None
        assert any("had to serve" in reason for reason in state.look.reasons)
        assert place.watched.settings().flows["chat"].configured_share == 0
        answer = await place.ask({"message_id": "m1", "content": "Hello"})
        assert answer.headers["x-cutover-assigned"] == "legacy"


async def test_captures_that_are_gone_pause(tmp_path: Path) -> None:
    """The disk is unmounted and comes back; meanwhile no step is made, and no time is held."""
    fault = [False]
    async with deployed(tmp_path, setup(tmp_path, fault, 25)) as place:
        rollout = Rollout(place, fault, 25.0)
        await rollout.serve(140)
        assert (await rollout.look()).passes == 1
        disk, away = tmp_path / "captures", tmp_path / "away"
        disk.rename(away)
        state = await rollout.looks(5)
        assert (state.flags.percent, state.passes) == (25.0, 0)
        assert state.detail.startswith("paused: the gate cannot decide: cannot read captures")
        away.rename(disk)
        rollout.file.folder.rename(away)
        state = await rollout.looks(5)
        assert (rollout.writer.read().percent, state.detail.startswith("paused: ")) == (25.0, True)
        away.rename(rollout.file.folder)
        assert (await rollout.look()).flags.percent == 50.0


async def test_a_killed_ramp_goes_on(tmp_path: Path) -> None:
    """`cutover ramp` is killed at 25 % after a pass, and another process makes the next step."""
    fault = [False]
    async with deployed(tmp_path, setup(tmp_path, fault, 25)) as place:
        rollout = Rollout(place, fault, 25.0)
        with ramp_process(tmp_path, "--hold", "3600") as killed:
            await until(lambda: _read(rollout) is not None)
            await rollout.serve(140)
            await until(lambda: (state := _read(rollout)) is not None and state.passes > 0)
            killed.kill()
        before = _read(rollout)
        assert before is not None
        assert (before.flags.percent, before.held > 0) == (25.0, True)
        with ramp_process(tmp_path, "--hold", "0.05"):
            await until(lambda: (state := _read(rollout)) is not None and state.flags.percent == 50)
        assert rollout.writer.read() == Flags(enabled=True, percent=50.0)


def _read(rollout: Rollout) -> RampState | None:
    return rollout.file.load()


def run_ramp(folder: Path, arguments: tuple[str, ...]) -> None:
    """Be `cutover ramp chat`."""
    steps = ("--steps", "25,50,100", "--passes", "2", "--interval", "0.05")
    config = ("--config", str(folder / "cutover.toml"))
    sys.argv = ["cutover", "ramp", "chat", *config, *steps, *arguments]
    main()


@contextmanager
def ramp_process(folder: Path, *arguments: str) -> Iterator[ForkServerProcess]:
    """Run `cutover ramp` in a process of its own; whatever happens, it ends."""
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=run_ramp, args=(folder, arguments))
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()
