"""The example with a flow declared in the configuration alone works as its page says."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

EXAMPLE = Path(__file__).parents[2] / "examples" / "declared_flow"
PORTS = {"old": "9001", "new": "9002"}


@dataclass
class Example:
    """The example, running."""

    url: str
    house: House
    session: aiohttp.ClientSession

    async def ask(self, ticket: str, said: str = "my lamp") -> tuple[str, list[Any]]:
        """Ask; give the stack that served, and the payloads of its events."""
        body = {
            "model": "desk",
            "metadata": {"ticket": ticket},
            "messages": [{"role": "user", "content": said}],
        }
        async with self.session.post(f"{self.url}/api/support", json=body) as response:
            assert response.status == 200
            events = SseDecoder().feed(await response.read())
        await until(lambda: not self.house.router.ledger.open and not tasks("conclude"))
        assert events[-1].data == b"[DONE]"
        chunks = [msgspec.json.decode(event.data) for event in events[:-1]]
        return response.headers["x-cutover-served"].split()[0], chunks

    def assigned(self, stack: str) -> str:
        """Find a ticket that goes to a stack."""
        settings = self.house.router.parts.settings()
        flow, salt = settings.flows["support"], settings.rollout.salt
        ids = (f"t{number}" for number in range(100))
        return next(one for one in ids if assign(flow, salt, one, None).stack == stack)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Example]:
    """Start the services and, in front of them, a router on the example's configuration."""
    text = (EXAMPLE / "cutover.toml").read_text("utf-8")
    services = []
    try:
        for name, port in PORTS.items():
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "service.py", "0", name),
                cwd=EXAMPLE,
                stdout=asyncio.subprocess.PIPE,
            )
            services.append(process)
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
            yield Example(url, built.house, session)
    finally:
        for process in services:
            process.terminate()
            await process.wait()
            process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio leaves its pipe open


async def invoked(*command: str) -> Any:  # noqa: ANN401 - typer's result
    """Run a command of the router's."""
    return await asyncio.to_thread(CliRunner().invoke, app, list(command))


async def test_the_example_splits_shadows_compares_and_ends_honestly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its page says, one after the other."""
    monkeypatch.chdir(tmp_path)
    async with running(tmp_path) as example:
        old, new = example.assigned("legacy"), example.assigned("graph")
        assert (await example.ask(old))[0] == "legacy"
        assert (await example.ask(new))[0] == "graph"
        await example.house.captures.flush()
        said = await invoked("diff", "captures", "-o", "report")
        assert said.exit_code == 1, said.output
        assert "1 of 1 pair differs, from 1 cause" in said.output
        assert "text" in said.output
        doctor = await invoked("doctor")
        assert doctor.exit_code == 0, doctor.output
        assert "/api/support, support (ramp), served by graph" in doctor.output
        assert "declared: sse, ends with [DONE]; broken, it ends in failure" in doctor.output
        assert "/chat/sse, chat: not offered" in doctor.output
        served, chunks = await example.ask(old, "a breakdown please")
        assert served == "legacy"
        assert chunks[-1]["error"]["code"] == "internal"
        async with example.session.get(f"{example.url}/openapi.json") as response:
            described = (await response.json())["paths"]
        assert "/api/support" in described
        assert "/chat/sse" not in described
    runs = [decode_run(line) for line in captured(tmp_path).splitlines()]
    assert [(run.role, run.stack, run.outcome) for run in runs] == [
        ("serving", "legacy", "completed"),
        ("shadow", "graph", "completed"),
        ("serving", "graph", "completed"),
        ("serving", "legacy", "truncated"),
        ("shadow", "graph", "truncated"),
    ]
    assert runs[0].request is not None
    assert msgspec.json.decode(runs[0].request.body)["metadata"] == {"ticket": old}
