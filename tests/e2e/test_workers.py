"""Several workers on one address: one router to its users, also while it stops."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

import aiohttp
import pytest
from typer.testing import CliRunner

from contract.records import decode_run
from cutover.cli import app
from loadtests.simulator import running
from tests.e2e.processes import RouterProcess, router_process
from tests.support.deployment import (
    PLANTED_KEY,
    Setup,
    captured,
    configuration,
    moment,
    segments,
    until,
)
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.sockets

MORE = """
[metrics]
enabled = true
[models.brief]
provider = "simulated"
model = "sim-chat?rate=200&tokens=20"
"""
ENOUGH = 16
"""Connections after which each of two workers has had one, but for one time in 30 000."""
REFUSED = re.compile(rf"^cutover_refusals_total{{.*message_locked.*}} {ENOUGH}\.0$", re.MULTILINE)


def body(message: str, model: str = "slow") -> dict[str, object]:
    """Return a request for a model of the configuration."""
    return {"message_id": message, "content": "Hello", "model_config": {"model_id": model}}


async def metrics(router: RouterProcess, session: aiohttp.ClientSession) -> str:
    """Read the page Prometheus reads."""
    async with session.get(f"{router.url}/metrics") as response:
        return await response.text()


@pytest.mark.slow
@pytest.mark.parametrize("cut", [False, True], ids=["ends well", "is cut"])
async def test_two_workers_share_locks_drain_together_and_keep_every_capture(
    tmp_path: Path, *, cut: bool
) -> None:
    """A message one answers is locked in the other; SIGTERM ends all streams well or honestly."""
    others = f"sqlite:///{tmp_path}/store.sqlite"
    setup = Setup(more=MORE, drain_seconds=0.2 if cut else PATIENCE_S, others=others)
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        running(api_key=PLANTED_KEY) as provider,
        router_process(tmp_path, provider.base_url, setup, "--workers", "2") as router,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        async with router.post(session, body("held")) as held:
            await held.content.readuntil(b"SEND")
            again = await asyncio.gather(
                *(router.ask(session, body("held")) for _ in range(ENOUGH))
            )
            assert {(one.status, one.problem["code"]) for one in again} == {(409, "message_locked")}
            async with asyncio.timeout(PATIENCE_S):  # every worker reports all, in the end
                while not REFUSED.search(await metrics(router, session)):
                    await moment()
            brief = [] if cut else [body(f"brief {n}", "brief") for n in range(4)]
            streams = [asyncio.create_task(router.ask(session, one)) for one in brief]
            await until(lambda: provider.ledger.counts()["total"] == 1 + len(brief))
            router.child.send_signal(signal.SIGTERM)
            await router.refuses()
            if cut:
                rest = await held.content.read()
                assert b'data: {"step":"FAILED","code":"stopping"}' in rest
            held.close()
        answers = await asyncio.gather(*streams)
        assert await router.child.wait() == 0
    assert [one.steps[-2:] for one in answers] == [["SUCCESS", "END"]] * len(brief)
    runs = [decode_run(line) for line in captured(tmp_path).splitlines()]
    assert sorted(run.outcome for run in runs) == sorted(
        ["completed"] * len(brief) + ["failed" if cut else "cancelled"] + ["refused"] * ENOUGH
    )
    assert len(segments(tmp_path)) == 2, "each worker has files of its own"


@pytest.mark.parametrize(
    ("setup", "words"),
    [
        (Setup(), "memory = 'memory://'; use sqlite:///…"),
        (Setup(others="sqlite:///x", locks="process"), "locks = 'process'; use sqlite:///…"),
        (Setup(others="sqlite:///x", pins="process"), "pins = 'process'; use sqlite:///…"),
        (
            Setup(conversations="http://localhost", others="postgresql://localhost/x"),
            "locks = 'auto'; use sqlite:///… or redis://…",
        ),
    ],
)
def test_what_workers_cannot_share_is_refused_before_anything_is_made(
    tmp_path: Path, setup: Setup, words: str
) -> None:
    """A lock of one process would let the other answer the same message."""
    path = tmp_path / "cutover.toml"
    path.write_text(configuration(tmp_path, "http://localhost", setup), "utf-8")
    result = CliRunner().invoke(app, ["serve", "--config", str(path), "--workers", "3"])
    assert result.exit_code == 2
    assert f"3 workers cannot share [stores] {words}" in result.output
    assert list(tmp_path.iterdir()) == [path]
