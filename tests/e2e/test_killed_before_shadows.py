"""A router is killed while shadows wait: what was served is on disk, and is said to lack a run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from typer.testing import CliRunner

from contract.records import RunRecord, decode_run
from cutover.cli import app
from loadtests.simulator import running
from tests.e2e.processes import RouterProcess, router_process
from tests.e2e.waiting_shadow import WAITS
from tests.support.deployment import PLANTED_KEY, Setup, captured, moment
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

COMPARED, WAITING = 6, 20
SETUP = Setup(
    shadow=100,
    captures="batch = 64\nflush_seconds = 0.05\nsegment_bytes = 2048",
    drain_seconds=0.5,
    more="""
[shadow]
seconds = 600.0

[stacks]
graph = "tests.e2e.waiting_shadow:FLOWS"
""",
)


def body(number: int, content: str) -> dict[str, Any]:
    """Return a message of a chat of its own."""
    return {
        "message_id": f"m{number} {content}",
        "chat_id": f"chat {number} {content}",
        "content": content,
        "model_config": {"model_id": "gpt-4.1"},
    }


async def ask(router: RouterProcess, session: aiohttp.ClientSession, count: int, what: str) -> None:
    """Ask so many times, and see each served to its end."""
    asked = (router.ask(session, body(number, what)) for number in range(count))
    assert {answer.steps[-1] for answer in await asyncio.gather(*asked)} == {"END"}


async def stored(
    router: RouterProcess, session: aiohttp.ClientSession, field: str, count: int
) -> None:
    """Wait until so many are on disk, as the router says."""
    async with asyncio.timeout(PATIENCE_S):
        while (await router.ready(session))["captures"][field] < count:
            await moment()


@pytest.mark.untraced
@pytest.mark.parametrize("end", ["killed", "stopped"])
async def test_a_kill_costs_no_served_run(tmp_path: Path, end: str) -> None:
    """All that was served is on disk; what the kill took is missing, what a stop dropped is not."""
    async with (
        running(api_key=PLANTED_KEY) as provider,
        aiohttp.ClientSession() as session,
        router_process(tmp_path, provider.base_url, SETUP) as router,
    ):
        await ask(router, session, COMPARED, "Hello")
        await stored(router, session, "lines", 2 * COMPARED)
        await ask(router, session, WAITING, WAITS)
        await stored(router, session, "written", COMPARED + WAITING)
        assert (await router.ready(session))["captures"]["lines"] == 2 * COMPARED + WAITING
        if end == "killed":
            router.child.kill()
        else:
            router.child.terminate()
        await router.child.wait()
    runs = [decode_run(line) for line in captured(tmp_path).splitlines()]
    served = [run for run in runs if run.role == "serving"]
    assert len({run.exchange for run in served}) == len(served) == COMPARED + WAITING
    assert {run.shadow for run in served} == {"due"}
    assert all(run.frames and run.tape and run.request for run in served)
    assert len(not_to_come(runs)) == (0 if end == "killed" else WAITING)
    status, verdict, reasons = diff(tmp_path)
    if end == "killed":
        assert (status, verdict) == (4, "incomplete")
        assert f"{WAITING} exchanges not compared: its second run was started and is missing" in (
            reasons
        )
    else:
        assert (status, verdict) == (0, "equal")
        assert f"{WAITING} exchanges not compared: its second run was dropped (stopping)" in reasons


def not_to_come(runs: list[RunRecord]) -> list[RunRecord]:
    """Return the lines that say that a second run does not come."""
    found = [run for run in runs if run.role == "shadow" and run.shadow]
    assert {(run.shadow, run.error and run.error.code, run.frames) for run in found} <= {
        ("dropped", "stopping", ())
    }
    return found


def diff(folder: Path) -> tuple[int, str, list[str]]:
    """Compare what was captured; returns the exit status, the verdict and its reasons."""
    out = folder / "report"
    command = ["diff", str(folder / "captures"), "-o", str(out), "--format", "json"]
    result = CliRunner().invoke(app, [*command, "--processes", "1"])
    report = msgspec.json.decode((out / "report.json").read_bytes())
    assert report["counts"]["exchanges"] == COMPARED + WAITING
    assert report["counts"]["pairs"] == COMPARED
    return result.exit_code, report["verdict"]["label"], report["verdict"]["reasons"]
