"""A process of its own with a stack that ends the process, or keeps it from ending."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from contract.records import decode_run
from cutover.server.shutdown import EXIT_SECONDS
from loadtests.simulator import running
from tests.e2e.processes import router_process
from tests.support.deployment import PLANTED_KEY, Setup, captured
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

STUBBORN = """
[stacks]
graph = "tests.e2e.stubborn_stack:FLOWS"
"""


async def test_a_stack_neither_ends_the_process_nor_keeps_it(tmp_path: Path) -> None:
    """`sys.exit` is a crash, in a callback nothing; deaf to its end, it is left behind."""
    setup = Setup(stack="graph", more=STUBBORN, drain_seconds=0.2)
    async with (
        running(api_key=PLANTED_KEY) as provider,
        router_process(tmp_path, provider.base_url, setup) as router,
        aiohttp.ClientSession() as session,
    ):
        exited = await router.ask(session, {"message_id": "1", "content": "exit"})
        called = await router.ask(session, {"message_id": "4", "content": "callback"})
        served = await router.ask(session, {"message_id": "2", "content": "go"})
        async with router.post(session, {"message_id": "3", "content": "stay"}) as response:
            while b"START_REPLY" not in await response.content.readline():
                pass
            began = asyncio.get_running_loop().time()
            router.child.send_signal(signal.SIGTERM)
            assert b"FAILED" in await response.read()
        async with asyncio.timeout(PATIENCE_S):
            assert await router.child.wait() == 0
        took = asyncio.get_running_loop().time() - began
    assert [answer.steps[-2] for answer in (exited, called, served)] == ["SUCCESS"] * 3
    assert took >= EXIT_SECONDS
    runs = [decode_run(line) for line in captured(tmp_path).splitlines()]
    assert [(run.role, run.outcome) for run in runs] == [
        ("serving", "failed"),
        ("fallback", "completed"),
        ("serving", "completed"),
        ("serving", "completed"),
        ("serving", "failed"),
    ]
    log = (tmp_path / "log").read_text("utf-8")
    assert "the process ends while these are still running: tasks: serving graph" in log
    assert "a callback asked for the end of the process" in log
