"""Routers that share state: one budget, and a stack that is down is found out once."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from loadtests.simulator import running
from router.serving.stack import LocalStack, Stack
from router.stack import StackName
from tests.e2e.processes import RouterProcess, router_process
from tests.e2e.redis_server import own_redis
from tests.support.deployment import PLANTED_KEY, Deployment, Setup, deployed, moment, until
from tests.support.faulty_stacks import after, crash
from tests.support.patience import PATIENCE_S
from tests.support.tool_replies import FLOWS

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.untraced]

BREAKER = """
[breaker]
least_requests = 2
window_seconds = 600.0
open_seconds = 600.0
"""
BUDGET = """
[metrics]
enabled = true
[shadow]
mode = "live"
tokens_per_day = 1
"""
ENOUGH = 16
"""Connections after which each of two workers has had one, but for one time in 30 000."""
DROPPED = re.compile(rf'^cutover_ledger_total{{.*reason="budget".*}} {ENOUGH}\.0$', re.MULTILINE)


def body(message: str) -> dict[str, object]:
    """Return a request."""
    return {"message_id": message, "content": "Hello"}


def breaker(place: Deployment) -> tuple[str, bool]:
    """Return the state of graph's breaker, and whether another router opened it."""
    known = place.services.router.admission.breakers.of("chat", "graph")
    return known.circuit.state(place.services.router.admission.breakers.monotonic()), known.reported


async def test_who_has_seen_no_failure_spares_the_stack_too(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two routers on one Redis: one is failed by graph, the other never asks it; both close it."""
    stacks: dict[StackName, Stack] = {
        "graph": LocalStack("graph", {"chat": after(FLOWS["graph"], 2, crash)}, "g"),
        "legacy": LocalStack("legacy", {"chat": FLOWS["legacy"]}, "l"),
    }
    async with AsyncExitStack() as opened:
        redis = await opened.enter_async_context(own_redis(tmp_path))
        setup = Setup(stack="graph", more=BREAKER, locks=redis.url, stacks=stacks)
        one, two = [
            await opened.enter_async_context(deployed(tmp_path_factory.mktemp(name), setup))
            for name in ("one", "two")
        ]
        for number in range(2):
            assert (await one.ask(body(f"fails {number}"))).steps[-1] == "END"
        assert breaker(one) == ("open", False)
        await until(lambda: breaker(two) == ("open", True))
        assert (await two.ask(body("spared"))).headers["x-cutover-served"] == "legacy l"
        assert two.services.router.counts.takeovers == 0
        assert two.services.router.counts.bypassed == 1
        two.services.router.admission.breakers.reset("chat", "graph")
        await until(lambda: breaker(one) == ("closed", False))


async def dropped(router: RouterProcess, session: aiohttp.ClientSession) -> bool:
    """Whether all workers together dropped so many shadows for the budget."""
    async with session.get(f"{router.url}/metrics") as response:
        return DROPPED.search(await response.text()) is not None


async def test_workers_have_one_budget_a_day(tmp_path: Path) -> None:
    """What one router spent today none of two workers started later spends again."""
    setup = Setup(shadow=100, more=BUDGET, others=f"sqlite:///{tmp_path}/store.sqlite")
    alone = Setup(shadow=100, more=BUDGET, locks=f"sqlite:///{tmp_path}/store.sqlite")
    async with deployed(tmp_path, alone) as place:
        await place.ask(body("spends"))
        await place.settled()
        assert place.services.router.shadows.budget.tokens > 0
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        running(api_key=PLANTED_KEY) as provider,
        router_process(tmp_path, provider.base_url, setup, "--workers", "2") as router,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        answers = await asyncio.gather(
            *(router.ask(session, body(f"m{number}")) for number in range(ENOUGH))
        )
        assert {answer.steps[-1] for answer in answers} == {"END"}
        async with asyncio.timeout(PATIENCE_S):
            while not await dropped(router, session):
                await moment()
        assert provider.ledger.counts()["total"] == ENOUGH, "no shadow has asked"
