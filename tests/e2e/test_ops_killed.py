"""A router is killed while an approval waits, or while what was approved runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from loadtests.simulator import running
from tests.e2e import ops
from tests.e2e.ops import results
from tests.e2e.processes import router_process
from tests.support.companion_client import after_its_end, post
from tests.support.deployment import PLANTED_KEY, Setup, moment, until
from tests.support.postgres import execute

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.untraced]

STAGES = ("plan", "build", "release", "verify")
UNKNOWN = "outcome_unknown"


def setup(folder: Path, percent: float, build: str = "true") -> Setup:
    """Return a deployment that releases the folder `source` beneath `releases`."""
    more = f"""
[flows.ops.options]
lock_ttl = 1.5

[admin]
audit_path = "{folder}/changes.jsonl"

[workers.deploy]
root = "{folder}/releases"
source = "{folder}/source"
build = ["/bin/sh", "-c", "{build}"]
check = ["/bin/sh", "-c", "test -e page"]
"""
    return ops.setup(folder, percent, more, shadow=0)


def audited(folder: Path) -> list[tuple[str, str, str]]:
    """Return the audit log: event, action, code."""
    query = "SELECT event, action, code FROM audit_entries ORDER BY seq"
    rows = execute(f"sqlite:///{folder}/store.sqlite", query)
    return [(str(event), str(action), str(code)) for event, action, code in rows]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with something to release."""
    (tmp_path / "releases").mkdir()
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "page").write_text("new", "utf-8")
    return tmp_path


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """Return a client that opens a connection for each request."""
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


async def asked(client: aiohttp.ClientSession, url: str) -> dict[str, object]:
    """Ask for a deployment; returns the decision that approves it."""
    waits = await post(client, f"{url}/ops/react", ops.instruction("deploy release v2"))
    return ops.decision(ops.approval_of(waits))


async def test_an_approval_outlives_kill_minus_nine(
    place: Path, client: aiohttp.ClientSession
) -> None:
    """Another process deploys on the other stack, once; the log has every step, once."""
    async with running(api_key=PLANTED_KEY) as provider:
        async with router_process(place, provider.base_url, setup(place, 0)) as router:
            decision = await asked(client, router.url)
            router.child.kill()
            await router.child.wait()
        async with router_process(place, provider.base_url, setup(place, 100)) as router:
            rest = await post(client, f"{router.url}/ops/resume", decision)
            assert rest.headers["x-cutover-served"].startswith("graph")
            assert results(rest) == [(stage, True) for stage in STAGES]
            assert rest.events[-1] == {"status": "completed"}
            again = await after_its_end(client, f"{router.url}/ops/resume", decision)
            assert (again.status, again.problem["code"]) == (409, "finished")
    assert (place / "releases" / "current").resolve().name == "v2"
    stages = [("executed", stage, "") for stage in STAGES]
    assert audited(place) == [("requested", "run", ""), ("approved", "run", ""), *stages]


async def test_what_was_running_at_a_kill_is_not_executed_again(
    place: Path, client: aiohttp.ClientSession
) -> None:
    """Its outcome is unknown: the log says so, the model is told, and nothing is released."""
    begun, over = place / "begun", place / "over"
    slow = setup(place, 0, f"echo x >> {begun}; until test -e {over}; do sleep 0.05; done")
    async with running(api_key=PLANTED_KEY) as provider:
        async with router_process(place, provider.base_url, slow) as router:
            decision = await asked(client, router.url)
            going = asyncio.create_task(post(client, f"{router.url}/ops/resume", decision))
            await until(begun.exists)
            router.child.kill()
            await router.child.wait()
            await asyncio.gather(going, return_exceptions=True)
        over.touch()  # a killed router kills nothing of what it started
        store = f"sqlite:///{place}/store.sqlite"
        execute(store, "UPDATE graph_checkpoints SET leased_until = 0")  # time passes
        async with router_process(place, provider.base_url, slow) as router:
            rest = await post(client, f"{router.url}/ops/resume", decision)
            while rest.status == 409 and rest.problem["code"] == "session_busy":  # for its lease
                await moment()
                rest = await post(client, f"{router.url}/ops/resume", decision)
    assert results(rest) == [("plan", True), ("build", False)]
    assert rest.events[-1] == {"status": "completed"}
    assert begun.read_text("utf-8") == "x\n"
    assert not (place / "releases" / "current").exists()
    assert audited(place)[-2:] == [("executed", "plan", ""), ("executed", "build", UNKNOWN)]
    assert '"deploy.build":"outcome_unknown"' in (place / "changes.jsonl").read_text("utf-8")
