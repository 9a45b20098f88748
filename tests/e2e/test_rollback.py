"""A rollback reaches every router that shares the file, while they serve."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
from typer.testing import CliRunner

from cutover.cli import app
from loadtests.simulator import running
from tests.e2e.processes import RouterProcess, router_process
from tests.support.deployment import PLANTED_KEY, Setup, moment
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.sockets


def rollback(path: Path) -> None:
    """Type `cutover rollback chat`."""
    result = CliRunner().invoke(app, ["rollback", "chat", "--config", str(path)])
    assert (result.exit_code, "within a second" in result.output) == (0, True)


async def until_on_legacy(router: RouterProcess, session: aiohttp.ClientSession) -> None:
    """Ask until legacy is assigned."""
    number = 0
    while True:
        number += 1
        body = {"message_id": f"{router.url}{number}", "content": "Hello"}
        answer = await router.ask(session, body)
        assert answer.status == 200
        if answer.headers["x-cutover-assigned"] == "legacy":
            return
        await moment()


@pytest.mark.slow
async def test_two_routers_follow(tmp_path: Path) -> None:
    """Both serve from graph; one command, and no request is assigned to graph any more.

    That a change is in force within a second is seen where time is virtual: test_watching.py.
    """
    setup = Setup(stack="graph", more=f'[admin]\naudit_path = "{tmp_path}/audit.jsonl"')
    async with (
        running(api_key=PLANTED_KEY) as provider,
        router_process(tmp_path, provider.base_url, setup) as one,
        router_process(tmp_path, provider.base_url, setup) as other,
        aiohttp.ClientSession() as session,
    ):
        for router in (one, other):
            answer = await router.ask(session, {"message_id": router.url, "content": "Hello"})
            assert answer.headers["x-cutover-assigned"] == "graph"
        await asyncio.to_thread(rollback, tmp_path / "cutover.toml")
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(until_on_legacy(each, session) for each in (one, other)))
