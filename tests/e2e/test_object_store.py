"""Captures on an S3-compatible server: commands read them there, and a kill leaves no half."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from compare.input.damage import Damage
from compare.input.segments import find_segments, read_lines
from contract.records import RunRecord, decode_run
from cutover.load_trace import captured_requests
from effects.places import Place
from loadtests.simulator import running
from tests.e2e.processes import RouterProcess, router_process
from tests.support.commands import run_command
from tests.support.deployment import (
    PLANTED_KEY,
    Deployment,
    Setup,
    deployed,
    first_turn,
    moment,
    until,
)
from tests.support.object_server import ObjectServer
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

PSEUDONYMS = "CUTOVER_TEST_PSEUDONYMS"
ASKED = 12


def runs(place: str) -> list[RunRecord]:
    """Return all runs at a place; nothing may be damaged."""
    lines = [line for segment in find_segments(place) for line in read_lines(segment)]
    assert not [line for line in lines if isinstance(line, Damage)]
    return [decode_run(line.data) for line in lines if not isinstance(line, Damage)]


async def typed(place: Deployment, command: str, *arguments: object) -> tuple[int, str]:
    """Run a command with the configuration of a deployment."""
    config = ("--config", place.watched.path)
    return await asyncio.to_thread(run_command, command, *arguments, *config)


async def test_what_is_captured_is_read_by_every_command(
    object_place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared, replayed, gated, timed and forgotten, while the router serves."""
    monkeypatch.setenv(PSEUDONYMS, "a key")
    setup = Setup(
        shadow=100,
        percent=50,
        captures_at=object_place,
        pseudonym_key_env=PSEUDONYMS,
        environ={PSEUDONYMS: "a key"},
        others=f"sqlite:///{tmp_path}/store.sqlite",
        more="[gate]\nrequests = 5\n",
    )
    async with deployed(tmp_path, setup) as place:
        for number in range(ASKED):
            user = "ann" if number % 3 == 0 else "ben"
            await place.ask(first_turn(f"m{number}") | {"user_id": user})
        await place.settled()
        await place.services.captures.flush()
        assert place.services.captures.counts.written == ASKED
        assert len(find_segments(object_place)) == 1
        out = ("-o", tmp_path / "report", "--processes", 1)
        status, said = await typed(place, "diff", object_place, *out)
        assert status == 0, said
        report = msgspec.json.decode((tmp_path / "report" / "report.json").read_bytes())
        assert report["counts"]["equal"] == ASKED
        again = ("--stack", "graph", "--processes", 0, "-o", tmp_path / "again")
        status, said = await typed(place, "replay", object_place, *again)
        assert status == 0, said
        replayed = [one for one in runs(f"{tmp_path}/again/segments") if one.role == "replay"]
        assert len({run.exchange for run in replayed}) == ASKED
        gate = ("--since", "1h", "--to", 60, "-o", tmp_path / "gate", "--processes", 1)
        status, said = await typed(place, "gate", object_place, *gate)
        assert status in {0, 1, 3}, said
        decision = msgspec.json.decode((tmp_path / "gate" / "gate.json").read_bytes())
        assert decision["compared"] == ASKED
        status, said = await asyncio.to_thread(run_command, "report", "nodes", object_place)
        assert status == 0, said
        assert len(captured_requests(object_place, "chat")) == ASKED
        status, said = await typed(place, "doctor")
        assert f"{object_place}: objects can be written, read, listed and deleted" in said
        assert len(Place(object_place).children(Place(object_place).root)[0]) == 1
        status, said = await typed(place, "ramp", "chat", "--dry-run")
        assert status in {0, 1, 3}, said
        assert "unknown" not in said, "the rate of requests is that of the captures"
        status, said = await typed(place, "forget", "--user", "ann")
        assert status == 0, said
        assert f"captures: {ASKED // 3} exchanges" in said
        left = runs(object_place)
        assert len({run.exchange for run in left}) == ASKED - ASKED // 3
        await place.ask(first_turn("later") | {"user_id": "ben"})
        await place.settled()
        await place.services.captures.flush()
        assert len(runs(object_place)) == len(left) + 2


def setup_at(s3: ObjectServer, captures: str = "") -> Setup:
    """Return a set-up whose router, in a process of its own, captures at the server."""
    return Setup(
        captures_at=f"{s3.bucket}/captures",
        captures=f"batch = 1\nflush_seconds = 0.05\n{captures}",
        environ=s3.environ,
    )


async def counted(
    router: RouterProcess, session: aiohttp.ClientSession, field: str, count: int
) -> dict[str, Any]:
    """Wait until so many are counted; returns what readiness reports."""
    async with asyncio.timeout(PATIENCE_S):
        while (ready := await router.ready(session))["captures"][field] < count:
            await moment()
    return dict(ready)


async def test_a_kill_in_the_middle_of_an_upload_leaves_nothing_of_it(
    s3: ObjectServer, tmp_path: Path
) -> None:
    """What was waiting is reported so before, and nothing can be read that is not whole."""
    setup, place = setup_at(s3, "object_seconds = 0.2"), f"{s3.bucket}/captures"
    async with running(api_key=PLANTED_KEY) as provider, aiohttp.ClientSession() as session:
        async with router_process(tmp_path, provider.base_url, setup) as router:
            for number in range(3):
                await router.ask(session, first_turn(f"a{number}"))
            await counted(router, session, "written", 3)
            s3.fault = "hold"
            for number in range(3):
                await router.ask(session, first_turn(f"b{number}"))
            await until(s3.held.is_set)
            assert (await counted(router, session, "waiting", 1))["captures"]["written"] == 3
            router.child.kill()
            await router.child.wait()
        s3.fault = None
        s3.go_on.set()
        assert len(runs(place)) == 3
        assert {path.rpartition(".")[2] for path in Place(place).below(Place(place).root)} == {
            "key",
            "zst",
        }
        async with router_process(tmp_path, provider.base_url, setup) as router:
            await router.ask(session, first_turn("c"))
            await counted(router, session, "written", 1)
    assert len(runs(place)) == 4


async def test_a_router_that_stops_puts_what_it_holds(s3: ObjectServer, tmp_path: Path) -> None:
    """And while the server refuses, readiness says why nothing is stored, and nothing is lost."""
    setup, place = setup_at(s3), f"{s3.bucket}/captures"
    async with (
        running(api_key=PLANTED_KEY) as provider,
        aiohttp.ClientSession() as session,
        router_process(tmp_path, provider.base_url, setup) as router,
    ):
        for number in range(5):
            await router.ask(session, first_turn(f"a{number}"))
        ready = await counted(router, session, "waiting", 5)
        assert "captures" not in ready["faults"]
        assert not find_segments(place)
        router.child.terminate()
        assert await router.child.wait() == 0
    assert len(runs(place)) == 5


async def test_a_store_that_is_away_is_a_fault_until_it_is_back(
    s3: ObjectServer, tmp_path: Path
) -> None:
    """Requests are served meanwhile, and everything is stored in the end."""
    setup, place = setup_at(s3, "object_seconds = 0.1"), f"{s3.bucket}/captures"
    async with (
        running(api_key=PLANTED_KEY) as provider,
        aiohttp.ClientSession() as session,
        router_process(tmp_path, provider.base_url, setup) as router,
    ):
        s3.fault = "refuse"
        for number in range(5):
            assert (await router.ask(session, first_turn(f"a{number}"))).steps[-1] == "END"
        async with asyncio.timeout(PATIENCE_S):
            while "captures" not in (ready := await router.ready(session))["faults"]:
                await moment()
        assert "the store refuses objects (OSError)" in ready["faults"]["captures"]
        s3.fault = None
        ready = await counted(router, session, "written", 5)
        assert ready["captures"]["dropped"] == {}
        assert "captures" not in (await router.ready(session))["faults"]
    assert len(runs(place)) == 5
