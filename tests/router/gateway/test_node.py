"""Clients of other languages, unmodified: openai-node, Anthropic's, the AI SDK, and curl."""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from loadtests.simulator import Answer, Silence
from tests.support.gateway import gateway_stage

pytestmark = [pytest.mark.nightly, pytest.mark.sockets]

PROJECT = Path(__file__).parents[2] / "gateway_node"
INSTALLING_SECONDS = 300


async def _output(*command: str | Path, cwd: Path) -> tuple[int, bytes]:
    """Run a program; return its exit code and output."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(process.communicate(), INSTALLING_SECONDS)
    assert process.returncode is not None
    return process.returncode, out or err


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the packages; skip where Node or the registry is missing."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    folder = tmp_path_factory.mktemp("node")
    for one in ("package.json", "clients.mjs"):
        shutil.copy(PROJECT / one, folder)
    options = ("--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts")
    code, said = asyncio.run(_output("npm", "install", *options, cwd=folder))
    if code:
        if os.environ.get("CI") == "true":
            pytest.fail(f"npm install: {said.decode()[-500:]}")
        pytest.skip("the registry of npm is not reachable")
    return folder


async def _ask(node: Path, name: str, base: str) -> Any:
    code, out = await _output("node", "clients.mjs", name, base, cwd=node)
    assert code == 0, out.decode()
    return json.loads(out)


@pytest.mark.parametrize(
    "name", ["chat_streamed", "chat_whole", "responses", "embeddings", "anthropic", "ai"]
)
async def test_a_client_on_node_is_recorded_and_played(node: Path, name: str) -> None:
    """The run that plays gets what the live one got, and the provider is asked once."""
    async with gateway_stage() as stage:
        recorded = await _ask(node, name, stage.run()[1])
        assert recorded["got"], recorded
        stage.exchange.finish_recording()
        assert await _ask(node, name, stage.run("play")[1]) == recorded
        assert len(stage.sim.requests) == 1


async def test_a_client_on_node_that_leaves_ends_the_call(node: Path) -> None:
    """Though the provider would go on."""
    async with gateway_stage() as stage:
        stage.sim.script([Answer(pieces=("a", "b"), fault=Silence(1))])
        assert await _ask(node, "cancelled", stage.run()[1]) == {"got": "left"}
        await stage.sim.until(lambda sim: sim.requests[0].cancelled_at is not None)


async def test_a_client_on_node_does_not_try_a_refusal_again(node: Path) -> None:
    """A run that plays an empty tape: the client reads the reason from the error."""
    async with gateway_stage() as stage:
        stage.exchange.finish_recording()
        run, base = stage.run("play")
        assert await _ask(node, "chat_whole", base) == {"status": 410, "code": "tape_miss"}
        assert run.ended is not None


async def test_curl_reads_a_stream(tmp_path: Path) -> None:
    """What it gets is what the provider sends, byte for byte."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    asked = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    options = ("-sN", "-H", "content-type: application/json", "-d", json.dumps(asked))
    async with gateway_stage() as stage:
        got = [
            await _output("curl", *options, f"{base}/v1/chat/completions", cwd=tmp_path)
            for base in (stage.sim.url, stage.url, stage.run()[1])
        ]
        assert got[0] == got[1] == got[2]
        assert got[0][1].endswith(b"data: [DONE]\n\n")
