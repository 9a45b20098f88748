"""A router is killed while a question waits: another one goes on from it, on the other stack."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest

from loadtests.simulator import running
from tests.e2e.processes import router_process
from tests.support.companion_client import after_its_end, hitl_id, picture, post, setup
from tests.support.deployment import PLANTED_KEY

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


@pytest.mark.untraced
async def test_a_question_outlives_kill_minus_nine(tmp_path: Path) -> None:
    """No model is asked a second time; what is approved is remembered, and the reply kept, once."""
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        running(api_key=PLANTED_KEY) as provider,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        before = setup(tmp_path, "legacy")
        async with router_process(tmp_path, provider.base_url, before) as router:
            asked = await post(session, f"{router.url}/chat/image", picture())
            hitl = hitl_id(asked)
            router.child.kill()
            await router.child.wait()
        calls = provider.ledger.counts()["total"]
        after = setup(tmp_path, "graph")
        async with router_process(tmp_path, provider.base_url, after) as router:
            answer = {"hitl_id": hitl, "action": "edit", "data": {"memory_1": "likes tea"}}
            assert (await post(session, f"{router.url}/hitl/respond", answer)).status == 200
            rest = await post(session, f"{router.url}/hitl/continue", {"hitl_id": hitl})
            assert rest.headers["x-cutover-served"].startswith("graph")
            assert rest.events[-1] == {"status": "completed"}
            again = await after_its_end(session, f"{router.url}/hitl/continue", {"hitl_id": hitl})
            assert (again.status, again.problem["code"]) == (409, "finished")
        assert provider.ledger.counts()["total"] == calls
    assert _rows(tmp_path, "SELECT text FROM memories") == [("likes tea",)]
    roles = _rows(tmp_path, "SELECT role FROM turns ORDER BY rowid")
    assert roles == [("user",), ("assistant",)]


def _rows(folder: Path, query: str) -> list[tuple[str]]:
    with closing(sqlite3.connect(folder / "store.sqlite")) as store:
        return store.execute(query).fetchall()
