"""The example with two services works as its page says."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec
import pytest
from typer.testing import CliRunner

from contract.records import decode_run
from contract.sse import SseDecoder
from cutover.application import application
from cutover.cli import app
from cutover.composition import House
from cutover.flows import SPECS
from cutover.serve import server
from router.rollout import assign
from router.watching import Watched
from tests.e2e.deployment import captured, listening, tasks, until

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "two_services"
COMMANDS = {"old": [sys.executable, "old_service.py"], "new": ["node", "new_service.mjs"]}
WORDS = "You said: hello there"


@pytest.fixture(scope="session", autouse=True)
def node() -> None:
    """Node.js, or a skip; under CI, a failure."""
    if shutil.which("node") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no node, and CI=true asks for it")
        pytest.skip("no node")


@dataclass
class Example:
    """The example, running."""

    url: str
    house: House
    services: dict[str, asyncio.subprocess.Process]
    session: aiohttp.ClientSession

    async def ask(self, message_id: str) -> tuple[dict[str, str], str]:
        """Ask; give the stack that was assigned and served, and the reply."""
        body = {"message_id": message_id, "content": "hello there"}
        async with self.session.post(f"{self.url}/chat/sse", json=body) as response:
            assert response.status == 200
            events = SseDecoder().feed(await response.read())
        steps = [msgspec.json.decode(event.data) for event in events]
        assert [steps[0]["step"], steps[-1]["step"]] == ["ACCEPT", "END"]
        said = ("assigned", "served")
        who = {name: response.headers[f"x-cutover-{name}"].split()[0] for name in said}
        return who, steps[-2]["content"]

    async def settled(self) -> None:
        """Wait until all are compared and written."""
        await until(lambda: not self.house.router.ledger.open and not tasks("conclude"))

    def assigned(self, stack: str) -> str:
        """Find a message id that goes to a stack."""
        settings = self.house.router.parts.settings()
        ids = (f"m{number}" for number in range(100))
        flow, salt = settings.flows["chat"], settings.rollout.salt
        return next(one for one in ids if assign(flow, salt, one, None).stack == stack)

    async def stop(self, name: str) -> None:
        """Stop a service."""
        self.services[name].terminate()
        await self.services[name].wait()


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Example]:
    """Start the services and, in front of them, a router on the example's configuration."""
    text = (EXAMPLE / "cutover.toml").read_text("utf-8")
    services = {}
    try:
        for (name, command), port in zip(COMMANDS.items(), ("9001", "9002"), strict=True):
            process = await asyncio.create_subprocess_exec(
                *command, "0", cwd=EXAMPLE, stdout=asyncio.subprocess.PIPE
            )
            services[name] = process
            assert process.stdout is not None
            told = (await process.stdout.readline()).decode()
            text = text.replace(port, told.partition("127.0.0.1:")[2].partition("/")[0])
        path = folder / "cutover.toml"
        path.write_text(text, "utf-8")
        async with (
            application(Watched(path, SPECS), {}) as built,
            listening(server(built.app, built.house.router, 1)) as url,
            aiohttp.ClientSession() as session,
        ):
            yield Example(url, built.house, services, session)
    finally:
        for process in services.values():
            if process.returncode is None:
                process.terminate()
                await process.wait()
            process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio leaves its pipe open


async def test_the_example_splits_shadows_and_falls_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its page says, one after the other."""
    monkeypatch.chdir(tmp_path)
    async with running(tmp_path) as example:
        old, new = example.assigned("legacy"), example.assigned("graph")
        assert await example.ask(old) == ({"assigned": "legacy", "served": "legacy"}, WORDS)
        await example.settled()
        assert await example.ask(new) == ({"assigned": "graph", "served": "graph"}, WORDS)
        await example.settled()
        books = {line.state: line.reason for line in example.house.router.ledger.counts}
        assert books == {"compared": "different", "not_sampled": "cannot"}
        await example.house.captures.flush()
        said = await asyncio.to_thread(
            CliRunner().invoke, app, ["diff", "captures", "-o", "report"]
        )
        assert said.exit_code == 0, "white space in JSON is no difference\n" + said.output
        await example.stop("new")
        assert await example.ask(new) == ({"assigned": "graph", "served": "legacy"}, WORDS)
        await example.settled()
    runs = [decode_run(line) for line in captured(tmp_path).splitlines()]
    assert [(run.role, run.stack, run.outcome) for run in runs] == [
        ("serving", "legacy", "completed"),
        ("shadow", "graph", "completed"),
        ("serving", "graph", "completed"),
        ("serving", "graph", "failed"),
        ("fallback", "legacy", "completed"),
    ]
