"""A load run through a router, then the gate on that router's captures and the run's output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from contract.flow import Event, Flow
from contract.ports import Effects
from cutover.load_checks import FIGURES
from cutover.wiring.stacks import load_stacks
from evidence.decision import Decision
from loadtests.report import LoadReport
from router.serving.stack import LocalStack
from tests.e2e.load_command import run_load_command
from tests.support.commands import run_command
from tests.support.deployment import QA_KEY, Setup, deployed
from tests.support.faulty_stacks import Boom

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.untraced]

REQUESTS = 300
TIMES = ("ttfe_p50", "ttfe_p95", "ttft_p50", "ttft_p95", "e2e_p50", "e2e_p95", "gap_p95")
GATE = f"""
[breaker]
least_requests = 100_000
[gate]
requests = 50
[gate.margins]
failures = 0.05
{"".join(f"{name} = 50.0{chr(10)}" for name in TIMES)}
[models.brief]
provider = "simulated"
model = "sim-chat?ttft_ms=50&rate=100&tokens=8"
"""
"""Of two stacks that are the same code: how busy this machine is says nothing."""


class Pool:
    """A flow with so many connections of its own; one request more is a bug of its author's."""

    def __init__(self, flow: Flow, most: int) -> None:
        self._flow = flow
        self._most = most
        self._open = 0

    async def __call__(self, request: Any, effects: Effects) -> AsyncIterator[Event]:
        """Raise where there are too many requests at once; else be the flow."""
        if self._open == self._most:
            raise Boom
        self._open += 1
        try:
            async with aclosing(cast("Any", self._flow(request, effects))) as inner:
                async for event in inner:
                    yield event
        finally:
            self._open -= 1


async def gated(folder: Path, *options: object) -> Decision:
    """Return what `cutover gate` says of the captures in a folder, as its exit status does."""
    out = folder / "gate"
    more = ("--config", folder / "cutover.toml", "-o", out, *options)
    status, text = await asyncio.to_thread(run_command, "gate", folder / "captures", *more)
    decision = msgspec.json.decode((out / "gate.json").read_bytes(), type=Decision)
    assert status == ("promote", "hold", "rollback", "cannot_tell").index(decision.verdict), text
    return decision


@pytest.mark.parametrize(
    ("most", "verdict"), [(1_000, "promote"), (1, "hold")], ids=["sound", "one at a time"]
)
async def test_the_gate_decides_on_what_a_load_run_has_just_measured(
    tmp_path: Path, most: int, verdict: str
) -> None:
    """Graph is promoted for what it served one by one, unless it broke under the load.

    The requests of the load run are in the captures, too: forced, they are no evidence there.
    """
    stacks = load_stacks()
    sound = stacks["legacy"].flows["chat"]
    stacks["graph"] = LocalStack("graph", {"chat": Pool(sound, most)}, "graph")
    messages = tmp_path / "messages.jsonl"
    brief = {"message_id": "m", "content": "Hello", "model_config": {"model_id": "brief"}}
    messages.write_bytes(msgspec.json.encode(brief))
    out, log = tmp_path / "load", tmp_path / "log"
    async with deployed(tmp_path, Setup(percent=50, stacks=stacks, more=GATE)) as place:
        for number in range(REQUESTS):
            body = {"message_id": f"m{number}", "chat_id": f"c{number}", "content": "Hello"}
            assert (await place.ask(body)).steps[-2:] == ["SUCCESS", "END"]
        options = ("--url", place.url, "--qa-key-env", QA_KEY, "--messages", messages, "-o", out)
        load = ("--engine", "open", "--rate", 40, "--seconds", 1, "--pairs", 5)
        assert await run_load_command(log, *load, *options, **{QA_KEY: "qa"}) == 0, log.read_text()
        await place.lines()
    report = msgspec.json.decode((out / "load.json").read_bytes(), type=LoadReport)
    alone = await gated(tmp_path)
    assert (alone.verdict, alone.compared) == ("promote", REQUESTS)
    decision = await gated(tmp_path, "--load", out)
    assert (decision.verdict, decision.compared) == (verdict, REQUESTS), decision.reasons
    assert {run.void for run in report.runs} == {()}
    under_load = {one.name: one for one in decision.checks if one.name.startswith("load_")}
    assert under_load.keys() == {f"load_{one.name}" for one in FIGURES.values()}
    assert {name for name, one in under_load.items() if one.n != 5} == set()
    (failures,) = (one for one in report.paired if one.metric == "failures")
    assert under_load["load_failures"].value == failures.value
    held = {name for name, one in under_load.items() if one.verdict != "promote"}
    assert held == ({"load_failures"} if verdict == "hold" else set())
