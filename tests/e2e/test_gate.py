"""The gate on captures of real routers: served over sockets, from a provider on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from contract.flow import Event, Flow
from contract.ports import Effects
from cutover.wiring.stacks import load_stacks
from evidence.decision import Decision
from router.serving.stack import LocalStack
from tests.support.commands import run_command
from tests.support.deployment import Setup, deployed
from tests.support.faulty_stacks import Boom

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

REQUESTS, AT_ONCE = 400, 20
WIDE = "ttft_p95 = 50.0\ne2e_p95 = 50.0\nttfe_p50 = 50.0\nttfe_p95 = 50.0\nttft_p50 = 50.0\n"
GATE = "[gate]\nrequests = 100\n[gate.margins]\nfailures = 0.05\n"
ANY_TIME = f"{GATE}{WIDE}e2e_p50 = 50.0\ngap_p95 = 50.0\n"
"""Of two stacks that are the same code: how busy this machine is says nothing."""


def changed(flow: Flow, seconds: float, *, failing: bool) -> Flow:
    """Let a flow wait before it begins, and fail for every tenth message."""

    async def other(request: Any, effects: Effects) -> AsyncIterator[Event]:
        if failing and request.body.message_id.endswith("7"):
            raise Boom
        await asyncio.sleep(seconds)
        async with aclosing(cast("Any", flow(request, effects))) as inner:
            async for event in inner:
                yield event

    return other


@pytest.mark.parametrize(
    ("seconds", "failing", "gate", "status", "check"),
    [
        (0.0, False, ANY_TIME, 0, "failures"),
        (0.5, False, GATE, 2, "ttft_p95"),
        (0.0, True, ANY_TIME, 2, "failures"),
    ],
    ids=["equal", "slower", "failing"],
)
async def test_served_requests_get_their_verdict(
    tmp_path: Path, seconds: float, failing: bool, gate: str, status: int, check: str
) -> None:
    """Both stacks run the same code, but that graph waits, or fails and legacy takes over."""
    legacy = load_stacks()["legacy"]
    flow = changed(legacy.flows["chat"], seconds, failing=failing)
    graph = LocalStack("graph", {**legacy.flows, "chat": flow}, "graph")
    setup = Setup(percent=50, stacks={"legacy": replace(legacy), "graph": graph}, more=gate)
    at_once = asyncio.Semaphore(AT_ONCE)
    async with deployed(tmp_path, setup) as place:

        async def ask(number: int) -> None:
            body = {"message_id": f"m{number}", "chat_id": f"c{number}", "content": "Hello"}
            async with at_once, place.post(body) as response:
                assert b'"END"' in await response.read()

        await asyncio.gather(*map(ask, range(REQUESTS)))
        await place.settled()
        await place.services.captures.flush()
    out = tmp_path / "out"
    options = ("--config", tmp_path / "cutover.toml", "-o", out)
    found, text = await asyncio.to_thread(run_command, "gate", tmp_path / "captures", *options)
    decision = msgspec.json.decode((out / "gate.json").read_bytes(), type=Decision)
    assert found == status, text
    (deciding,) = (one for one in decision.checks if one.name == check)
    assert deciding.verdict == decision.verdict
    assert deciding.n == decision.compared == REQUESTS
    writes = {one.store: one for one in decision.lasting}
    assert writes["conversations"].what.startswith("put")
    assert "locks" not in writes
