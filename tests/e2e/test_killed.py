"""A router is killed under open streams: what it leaves behind can be read, and ends by itself."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from typer.testing import CliRunner

from contract.records import decode_run
from cutover.cli import app
from loadtests.simulator import Served, running
from tests.e2e.processes import RouterProcess, router_process
from tests.support.deployment import PLANTED_KEY, Setup, captured, first_turn, moment, until
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

BRIEF, OPEN = 24, 200
BATCH = 8
MORE = """
[models.endless]
provider = "simulated"
model = "sim-chat?rate=2&tokens=2000&limit=2000"
"""


def setup(folder: Path) -> Setup:
    """Keep all that routers share in one file; pins of conversations, too."""
    store = f"sqlite:///{folder}/store.sqlite"
    return Setup(
        shadow=100,
        percent=50,
        route_key="session_id",
        others=store,
        locks=store,
        pins=store,
        lock_ttl=1.5,
        captures=f"batch = {BATCH}\nflush_seconds = 0.1",
        more=MORE,
    )


@pytest.mark.untraced
async def test_kill_minus_nine_under_200_open_streams(tmp_path: Path) -> None:
    """Captures compare, locks end after their ttl, pins hold, and the next start is clean."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with (
        running(api_key=PLANTED_KEY) as provider,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        async with router_process(tmp_path, provider.base_url, setup(tmp_path)) as router:
            brief = await asyncio.gather(
                *(router.ask(session, first_turn(f"b{n}")) for n in range(BRIEF))
            )
            assigned = [answer.headers["x-cutover-assigned"] for answer in brief]
            certain = await written(router, session)
            await broken(router, session, provider)
        assert leases(tmp_path) == OPEN, "nothing has released them"
        assert equal(tmp_path, certain)
        async with router_process(tmp_path, provider.base_url, setup(tmp_path)) as router:
            assert (await router.ready(session))["faults"] == {}
            await unlocked(router, session)
            later = [await router.ask(session, follow_up(n)) for n in range(BRIEF)]
            assert [answer.headers["x-cutover-assigned"] for answer in later] == assigned
            router.child.terminate()
            assert await router.child.wait() == 0
    runs = [decode_run(line) for line in captured(tmp_path).splitlines()]
    assert sum(run.role == "serving" for run in runs) >= certain + 1 + BRIEF
    assert equal(tmp_path, certain + BRIEF)


async def written(router: RouterProcess, session: aiohttp.ClientSession) -> int:
    """Wait until all but the last batch is on disk; returns how many exchanges that are."""
    async with asyncio.timeout(PATIENCE_S):
        while (count := (await router.ready(session))["captures"]["written"]) < BRIEF - BATCH:
            await moment()
    return int(count)


async def broken(router: RouterProcess, session: aiohttp.ClientSession, provider: Served) -> None:
    """Open streams, kill the router among them, and see every one of them end."""
    streams = [
        asyncio.create_task(router.ask(session, first_turn(f"s{n}", "endless")))
        for n in range(OPEN)
    ]
    await until(lambda: provider.ledger.counts()["in_flight"] == OPEN)
    router.child.kill()
    await router.child.wait()
    ends = await asyncio.gather(*streams, return_exceptions=True)
    assert {isinstance(end, aiohttp.ClientError) for end in ends} == {True}


async def unlocked(router: RouterProcess, session: aiohttp.ClientSession) -> None:
    """Ask again what was being answered: locked at first, served when the lease is over."""
    codes: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await router.ask(session, first_turn("s0"))).status == 409:
            codes.append(answer.problem["code"])
    assert set(codes) <= {"message_locked"}
    assert answer.steps[-2:] == ["SUCCESS", "END"]


def follow_up(number: int) -> dict[str, Any]:
    """Return the second turn of a chat."""
    return first_turn(f"b{number} again") | {"chat_id": f"chat b{number}"}


def leases(folder: Path) -> int:
    """Count the locks in the store, held or over."""
    with closing(sqlite3.connect(folder / "store.sqlite")) as store:
        (count,) = store.execute("SELECT count(*) FROM locks").fetchone()
    return int(count)


def equal(folder: Path, least: int) -> bool:
    """Return whether what was captured compares as equal, in at least so many exchanges."""
    out = folder / "report"
    command = ["diff", str(folder / "captures"), "-o", str(out), "--format", "json"]
    result = CliRunner().invoke(app, [*command, "--processes", "1"])
    counts = msgspec.json.decode((out / "report.json").read_bytes())["counts"]
    assert counts["exchanges"] >= least, counts
    # 4: the last batch is torn, or shadows that had not ended are missing.
    return result.exit_code in (0, 4)
