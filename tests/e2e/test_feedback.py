"""Feedback on exchanges of other workers and of before a restart is counted and reported."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import aiohttp
import msgspec
import pytest
from typer.testing import CliRunner

from compare.input.damage import Damage
from compare.input.outcomes import read_outcomes
from contract.flows import SPECS
from cutover.cli import app
from loadtests.simulator import running
from tests.e2e.processes import RouterProcess, router_process
from tests.support.deployment import PLANTED_KEY, Setup, moment
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

ASKED = 12
METRICS = "[metrics]\nenabled = true\n"


async def send(
    router: RouterProcess, session: aiohttp.ClientSession, exchange: str, to: int
) -> int:
    """Send a score on an exchange; returns the status."""
    body = {"exchange_id": exchange, "score": to, "comment": "mail li.lei@example.org"}
    async with session.post(f"{router.url}/feedback", json=body) as response:
        return response.status


async def counted(router: RouterProcess, session: aiohttp.ClientSession, line: str) -> None:
    """Wait until some worker's page has a line; every worker reports all, in the end."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with session.get(f"{router.url}/metrics") as response:
                if line in await response.text():
                    return
            await moment()


async def stopped(router: RouterProcess) -> None:
    """Stop a router, and wait for its captures."""
    router.child.send_signal(signal.SIGTERM)
    assert await router.child.wait() == 0


async def test_feedback_after_a_restart_is_joined_by_assigned_stack(tmp_path: Path) -> None:
    """By whichever of two workers: no id was made by a process that still runs."""
    others = f"sqlite:///{tmp_path}/store.sqlite"
    setup = Setup(more=METRICS, others=others, percent=50)
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        running(api_key=PLANTED_KEY) as provider,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        async with router_process(tmp_path, provider.base_url, setup, "--workers", "2") as router:
            answers = [
                await router.ask(session, {"message_id": f"m{number}", "content": "Hello"})
                for number in range(ASKED)
            ]
            await stopped(router)
        assigned = {
            answer.headers["x-cutover-exchange"]: answer.headers["x-cutover-assigned"]
            for answer in answers
        }
        liked = "legacy"
        async with router_process(tmp_path, provider.base_url, setup, "--workers", "2") as router:
            for exchange, stack in assigned.items():
                for score in (0, 1 if stack == liked else -1):
                    assert await send(router, session, exchange, score) == 202
            assert await send(router, session, "0" * 40, 1) == 404
            for stack in ("legacy", "graph"):
                score, count = 1 if stack == liked else -1, list(assigned.values()).count(stack)
                assert count
                labels = f'assigned="{stack}",flow="chat",score="{score}"'
                await counted(router, session, f"cutover_feedback_total{{{labels}}} {count}.0")
            await stopped(router)
    rows = list(read_outcomes(f"{tmp_path}/captures", SPECS))
    scores = {
        row.exchange: (row.assigned, row.served, row.feedback)
        for row in rows
        if not isinstance(row, Damage)
    }
    assert len(rows) == ASKED
    command = ["diff", f"{tmp_path}/captures", "-o", f"{tmp_path}/report"]
    await asyncio.to_thread(CliRunner().invoke, app, command)
    report = msgspec.json.decode((tmp_path / "report" / "report.json").read_bytes())
    assert {(row["by"], row["stack"]): row["scores"] for row in report["outcomes"]} == {
        (by, stack): {str(score): list(assigned.values()).count(stack)}
        for stack, score in (("legacy", 1), ("graph", -1))
        for by in ("assigned", "served")
    }
    assert scores == {
        exchange: (stack, stack, 1 if stack == liked else -1)
        for exchange, stack in assigned.items()
    }
