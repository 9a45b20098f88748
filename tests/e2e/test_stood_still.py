"""A router's process is stopped for a while: what was healthy before is healthy after."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from contract.records import decode_run
from loadtests.simulator import running
from tests.e2e.processes import router_process
from tests.support.deployment import PLANTED_KEY, Setup, captured, until

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

STREAMS = 40
LIMIT = 10.0
STOPPED = 11.0
MORE = f"""
[limits]
stall_seconds = {LIMIT}

[breaker]
least_requests = 2

[providers.brief]
base_url = "PROVIDER"
key_env = "CUTOVER_TEST_KEY"
first_token_seconds = {LIMIT}
idle_seconds = {LIMIT}

[models.steady]
provider = "brief"
model = "sim-chat?rate=20&tokens=80&limit=2000"
"""


@pytest.mark.untraced
async def test_a_stop_longer_than_every_limit_blames_nothing(tmp_path: Path) -> None:
    """No takeover, no open breaker, no model that timed out: each stream goes on, whole."""
    setup = Setup(percent=50, more=MORE, captures="flush_seconds = 0.1")
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with (
        running(api_key=PLANTED_KEY) as provider,
        aiohttp.ClientSession(connector=connector) as session,
        router_process(tmp_path, provider.base_url, setup) as router,
    ):
        asking = [asyncio.create_task(router.ask(session, body(n))) for n in range(STREAMS)]
        await until(lambda: provider.ledger.counts()["total"] == STREAMS)
        router.child.send_signal(signal.SIGSTOP)
        await asyncio.wait(asking, timeout=STOPPED)
        router.child.send_signal(signal.SIGCONT)
        answers = await asyncio.gather(*asking)
        assert {answer.steps[-2:] == ["SUCCESS", "END"] for answer in answers} == {True}
        assert {b"served-by" in answer.body for answer in answers} == {False}
        assert (await router.ready(session))["faults"].keys() <= {"event_loop"}
        router.child.terminate()
        assert await router.child.wait() == 0
    runs = [decode_run(line) for line in captured(tmp_path).splitlines()]
    assert {(run.role, run.outcome, run.reason) for run in runs} == {
        ("serving", "completed", "percent")
    }
    assert len(runs) == STREAMS
    assert {run.stack for run in runs} == {"legacy", "graph"}


def body(number: int) -> dict[str, object]:
    """Ask a model that answers for four seconds."""
    return {
        "message_id": f"m{number}",
        "content": "Hello",
        "model_config": {"model_id": "steady"},
    }
