"""The example services behind a router: processes on the gateway, as their diffs put them there."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import aiohttp
import pytest

from contract.flows import SPECS
from cutover.application import application
from cutover.server.serve import server
from cutover.wiring.composition import Services
from loadtests.simulator import running
from router.config.watcher import SettingsWatcher
from tests.support.deployment import gateway_of, listening, tasks, until
from tests.support.example_processes import EXAMPLES
from tests.support.ports import own_port

Name = Literal["openai_service", "langgraph_service", "openai_node"]

PATH: Final = "/api/assistant"
_GATEWAY: Final = "http://127.0.0.1:8081/v1"
"""Where the diffs of the examples say that the gateway is."""
_HERE: Final = Path(__file__).parent
_NODE: Final = _HERE / "openai_node"
_CONFIGURATION: Final = """
[stacks.legacy]
url = "http://127.0.0.1:%(legacy)d/"
flows = [%(names)s]
paths = { %(legacy_paths)s }
resumable = true

[stacks.graph]
url = "http://127.0.0.1:%(graph)d/"
flows = [%(names)s]
paths = { %(graph_paths)s }
shadow_safe = true

[gateway]
enabled = true

[providers.simulated]
base_url = "%(provider)s"
key_env = "OPENAI_API_KEY"

[models."gpt-4.1-mini"]
provider = "simulated"
model = "%(model)s"
"""
_FLOW: Final = """
[flows.%(name)s]
path = "/%(name)s"
route_keys = { session_id = "conversation_id" }
enable_langgraph = true
langgraph_percent = %(percent)s
shadow_percent = %(shadow)s

[flows.%(name)s.dialect]
terminal = ["done"]
text = { token = "text" }
errors = { events = ["error"], code = "code" }
failure = [{ event = "error", data = '{"code":"{code}"}' }]
"""


@dataclass(frozen=True)
class Assistants:
    """Two services and the router in front of them; a flow is asked at its name."""

    url: str
    services: Services
    session: aiohttp.ClientSession
    graph: asyncio.subprocess.Process

    def post(self, flow: str, conversation: str, message: str, picture: str | None = None) -> Any:
        """Ask."""
        body = {"conversation_id": conversation, "message": message, "picture": picture}
        return self.session.post(f"{self.url}/{flow}", json=body)

    async def ask(
        self, flow: str, conversation: str, message: str, picture: str | None = None
    ) -> bytes:
        """Ask and read; the other service has been asked as well when the answer is returned."""
        async with self.post(flow, conversation, message, picture) as response:
            assert response.status == 200
            body: bytes = await response.read()
        await self.settled()
        return body

    async def settled(self) -> None:
        """Wait until all are compared and written."""
        await until(lambda: not self.services.router.ledger.open and not tasks("close"))
        await self.services.captures.flush()


@asynccontextmanager
async def assistants(
    folder: Path,
    graph: Name,
    variants: Mapping[str, tuple[str, str]],
    *,
    percent: Literal[0, 100] = 0,
    model: str = "sim-chat",
) -> AsyncIterator[Assistants]:
    """Start the openai service, the graph one and, in `folder`, a router with the gateway.

    The flow `clean` leads to both as they are, the flow of a variant to an openai service in which
    the first text is replaced by the second. Either legacy serves all, in the shadow of graph, or
    graph does, alone.
    """
    async with AsyncExitStack() as opened:
        enter = opened.enter_async_context
        provider = await enter(running())
        old, new, front, model_port = (opened.enter_context(own_port()) for _ in range(4))
        flows = {"clean": PATH, **{name: f"/{name}{PATH}" for name in variants}}
        facts = {
            "legacy": old,
            "graph": new,
            "names": ", ".join(f'"{flow}"' for flow in flows),
            "legacy_paths": ", ".join(f'{flow} = "{path}"' for flow, path in flows.items()),
            "graph_paths": ", ".join(f'{flow} = "{PATH}"' for flow in flows),
            "provider": provider.base_url,
            "model": model,
        }
        shares = {"percent": percent, "shadow": 100 - percent}
        tables = [_FLOW % {"name": flow, **shares} for flow in flows]
        path = folder / "cutover.toml"
        path.write_text(_CONFIGURATION % facts + "".join(tables), "utf-8")
        built = await enter(application(SettingsWatcher(path, SPECS), {"OPENAI_API_KEY": "none"}))
        url = await enter(listening(server(built.app, built.services.router, 1), front))
        gateway = await enter(gateway_of(built, url, model_port))
        await enter(_process(_legacy(folder, gateway, old, variants), folder))
        process = await enter(_process(_graph(folder, gateway, new, graph), folder))
        session = await enter(aiohttp.ClientSession())
        yield Assistants(url, built.services, session, process)


def needs_node() -> None:
    """Skip where there is no Node.js, or its package could not be fetched."""
    if shutil.which("node") is None or not (_NODE / "node_modules").exists():
        pytest.skip(f"no node, or no `npm ci` in {_NODE.relative_to(EXAMPLES.parent)}")


def patched(name: Name, folder: Path, gateway: str = _GATEWAY) -> Path:
    """Copy an example into a folder and apply its diff; returns the service's file."""
    (folder / name).mkdir()
    file = folder / name / "service.py"
    shutil.copy(EXAMPLES / name / "service.py", file)
    diff = (EXAMPLES / name / "gateway.diff").read_bytes()
    subprocess.run(["patch", "--quiet", "-p1"], input=diff, cwd=folder, check=True)  # noqa: S607
    file.write_text(file.read_text("utf-8").replace(_GATEWAY, gateway), "utf-8")
    return file


def _legacy(
    folder: Path, url: str, port: int, variants: Mapping[str, tuple[str, str]]
) -> list[str]:
    text = patched("openai_service", folder, f"{url}/v1").read_text("utf-8")
    for name, (written, instead) in variants.items():
        assert written in text, written
        (folder / name).mkdir()
        (folder / name / "service.py").write_text(text.replace(written, instead), "utf-8")
    return [sys.executable, str(_HERE / "mounted.py"), str(port), "openai_service", *variants]


def _graph(folder: Path, url: str, port: int, name: Name) -> list[str]:
    if name == "openai_node":
        return ["node", str(_NODE / "service.mjs"), str(port), f"{url}/v1"]
    patched(name, folder, f"{url}/v1")
    serve = [sys.executable, "-m", "uvicorn", "--app-dir", name, "service:app"]
    return [*serve, "--port", str(port)]


@asynccontextmanager
async def _process(
    command: Sequence[str], folder: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a service until it is done with; it listens once it has said where."""
    environ = {**os.environ, "OPENAI_API_KEY": "none"}
    null, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environ, stdout=null, stderr=pipe
    )
    listens = asyncio.Event()
    reading = asyncio.create_task(_read(process, listens))
    try:
        await listens.wait()
        assert process.returncode is None, reading.result()
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        told = await reading
    assert "Traceback" not in told, told


async def _read(process: asyncio.subprocess.Process, listens: asyncio.Event) -> str:
    """Read what a service tells to its end."""
    assert process.stderr is not None
    told = ""
    while line := await process.stderr.readline():
        told += line.decode()
        if "http://127.0.0.1" in told:
            listens.set()
    await process.wait()
    listens.set()
    return told
