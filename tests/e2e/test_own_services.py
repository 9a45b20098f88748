"""Services of other people's making: init, serve, mirror, take over, as a newcomer would."""

import asyncio
import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from cutover.wire import Reader, find_dialect
from harness.setup.trial import Example
from loadtests.simulator import Simulator
from tests.support.processes import ROOT, Program, free_port

pytestmark = [pytest.mark.sockets, pytest.mark.nightly]

STRANGERS = ROOT / "tests" / "strangers"
SECONDS = 60.0
UVICORN = [sys.executable, "-m", "uvicorn", "--log-level", "error", "--port"]
PROGRAMS: Mapping[str, tuple[str, list[str]]] = {
    "completions": ("chat-completions", [*UVICORN, "PORT", "tests.strangers.completions:app"]),
    "agent": ("langgraph", [*UVICORN, "PORT", "tests.strangers.agent:app"]),
    "ui": ("ai-sdk", ["node", str(STRANGERS / "ui.mjs")]),
}
LATE = {"OLD": "1", "NEW": "3"}
"""How many of the model's pieces each service sends at once."""


@dataclass
class Home:
    """A newcomer's folder: two services, and the command line."""

    folder: Path
    program: str
    model: Simulator
    ports: dict[str, int] = field(
        default_factory=lambda: {name: free_port() for name in ("OLD", "NEW", "router", "gateway")}
    )
    running: dict[str, Program] = field(default_factory=dict)

    @property
    def dialect(self) -> str:
        """What the services speak."""
        return PROGRAMS[self.program][0]

    @asynccontextmanager
    async def services(self, model: str, *, traced: bool) -> AsyncIterator[None]:
        """Run both services, asking their model at a base URL."""
        async with AsyncExitStack() as opened:
            for name in ("OLD", "NEW"):
                said = {"MODEL_URL": model, "PIECES": LATE[name]}
                said |= {"TRACED": "1"} if traced else {}
                service = self.program_at(name, PROGRAMS[self.program][1], said)
                self.running[name] = await opened.enter_async_context(service)
            yield

    def program_at(self, name: str, command: list[str], told: Mapping[str, str]) -> Program:
        """Return a program that listens at an address."""
        return Program(self.folder, command=command, environment=dict(told), port=self.ports[name])

    def url(self, name: str) -> str:
        """Return an address."""
        return f"http://127.0.0.1:{self.ports[name]}"

    async def run(self, *arguments: str) -> tuple[int, str]:
        """Run a command to its end; return its status and what it wrote."""
        command = [sys.executable, "-m", "harness", *arguments]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        pipe = asyncio.subprocess.PIPE
        done = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.folder,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
        )
        out, err = await asyncio.wait_for(done.communicate(), SECONDS)
        return done.returncode or 0, (out + err).decode()

    def edit(self, *, gateway: bool) -> Example:
        """Edit the file as its comments say; return its example."""
        path = self.folder / "cutover.toml"
        text = path.read_text("utf-8").replace("shadow_safe = false", "shadow_safe = true")
        text = re.sub(r"(?<=\[server\]\nport = )\d+", str(self.ports["router"]), text)
        if gateway:
            text = re.sub(r"^#(?=[\[a-z])", "", text, flags=re.MULTILINE)
            text = re.sub(r"(?<=\[gateway\]\nport = )\d+", str(self.ports["gateway"]), text)
            text = text.replace("https://api.openai.com/v1", self.model.base_url)
        path.write_text(text, "utf-8")
        return Example.of(tomllib.loads(text)["flows"]["main"]["example"])

    @asynccontextmanager
    async def served(self) -> AsyncIterator[httpx.AsyncClient]:
        """Serve what the file says; yield a client of the router."""
        command = [sys.executable, "-m", "harness", "serve", "--config", "cutover.toml"]
        async with (
            self.program_at("router", command, {}),
            httpx.AsyncClient(base_url=self.url("router"), timeout=SECONDS) as client,
        ):
            yield client

    def text(self, stream: bytes) -> str:
        """Return what a stream says."""
        reader = Reader(find_dialect(self.dialect))
        reader.feed(stream)
        reader.close()
        return "".join(reader.texts.values())


@asynccontextmanager
async def home(folder: Path, program: str) -> AsyncIterator[Home]:
    """Open a folder with a simulated provider beside it."""
    if program == "ui" and shutil.which("node") is None:
        pytest.skip("node is not installed")
    async with Simulator(chunk_ms=10) as model:
        yield Home(folder, program, model)


async def ask(client: httpx.AsyncClient, example: Example) -> httpx.Response:
    """Ask as the example does."""
    return await client.request(
        example.method, example.target, content=example.body, headers=dict(example.headers)
    )


async def ledger(client: httpx.AsyncClient, count: int) -> dict[str, Any]:
    """Return the status once `count` requests have had their shadow."""
    async with asyncio.timeout(SECONDS):
        while True:
            status: dict[str, Any] = (await client.get("/cutover/status")).json()
            if sum(status["shadows"].values()) >= count:
                return status
            await asyncio.sleep(0.05)  # a process of its own has no clock to move


@pytest.mark.parametrize("program", PROGRAMS)
async def test_two_services_are_mirrored_and_taken_over(program: str, tmp_path: Path) -> None:
    """Equal at the first attempt; what a killed service had begun is whole."""
    async with home(tmp_path, program) as own:
        async with own.services(own.model.base_url, traced=False):
            status, said = await own.run("init", own.url("OLD"), own.url("NEW"))
            assert status == 0, said
            assert own.dialect in said
            assert said.count("whole:") == 2
        example = own.edit(gateway=True)
        async with own.services(f"{own.url('gateway')}/v1", traced=True), own.served() as client:
            before = len(own.model.requests)
            answers = [await ask(client, example) for _ in range(3)]
            assert {one.headers["x-cutover-served"] for one in answers} == {"legacy"}
            status_now = await ledger(client, 3)
            assert status_now["shadows"] == {"equal": 3}, status_now
            assert len(own.model.requests) == before + 3  # what a shadow asks is on the tape
            assert status_now["uncorrelated"] == {}
            text = own.text(answers[0].content)
            assert await killed(own, client, example) == text
        assert text


async def killed(own: Home, client: httpx.AsyncClient, example: Example) -> str:
    """Kill the service that serves in mid-text; return what the client got to read."""
    got = b""
    method, target = example.method, example.target
    async with client.stream(
        method, target, content=example.body, headers=dict(example.headers)
    ) as answer:
        async for piece in answer.aiter_bytes():
            got += piece
            if len(own.text(got)) > 20 and own.running["OLD"].alive:
                await own.running["OLD"].kill()
    assert b": served-by graph" in got
    return own.text(got)


@pytest.mark.parametrize("gateway", [False, True])
async def test_calls_that_name_no_run_are_shown(gateway: bool, tmp_path: Path) -> None:
    """The base URL is changed, the header is not passed on: doctor says so, with the two lines."""
    async with home(tmp_path, "completions") as own:
        async with own.services(own.model.base_url, traced=False):
            await own.run("init", own.url("OLD"), own.url("NEW"))
        example = own.edit(gateway=gateway)
        model = f"{own.url('gateway')}/v1" if gateway else own.model.base_url
        async with own.services(model, traced=False), own.served() as client:
            await ask(client, example)
            await ledger(client, 1)
            status, said = await own.run("doctor", "--json")
            found = json.loads(said)
            check = next(one for one in found["checks"] if one["name"] == "gateway")
            assert status == 0, said
            assert check["state"] == "warn"
            assert '/v1")' in check["todo"]
            assert "traceparent" in check["todo"]
            assert ("calls came without their run" in check["detail"]) is gateway
            uses = {one["name"]: one["works"] for one in found["uses"]}
            assert uses == {
                "fallback": "yes",
                "mirror": "partly",
                "takeover": "partly",
                "replay": "no",
            }


async def test_apps_are_started_and_stopped(tmp_path: Path) -> None:
    """`init module:app module:app`: each under uvicorn, for the question and while it is served."""
    async with home(tmp_path, "completions") as own:
        os.environ["MODEL_URL"] = own.model.base_url
        try:
            app = "tests.strangers.completions:app"
            status, said = await own.run("init", app, app, "--conversation", "-")
            assert status == 0, said
            example = own.edit(gateway=False)
            async with own.served() as client:
                answer = await ask(client, example)
                assert answer.headers["x-cutover-served"] == "legacy"
                assert (await ledger(client, 1))["shadows"] == {"equal": 1}
                status, said = await own.run("doctor")
                assert status == 0, said
                assert re.search(r"^ok +services", said, re.MULTILINE), said
        finally:
            del os.environ["MODEL_URL"]
