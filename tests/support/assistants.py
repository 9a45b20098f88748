"""The example services behind a router: processes on the gateway, as their diffs put them there."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import aiohttp
import pytest

from benchmarks.services import examples
from benchmarks.services.examples import (
    EXAMPLES,
    KEY,
    PATH,
    Ports,
    Rung,
    Shares,
    command,
    configuration,
    patched,
    shop_command,
)
from contract.flows import SPECS
from cutover.application import application
from cutover.server.serve import server
from cutover.wiring.composition import Services
from loadtests.processes import own_port
from loadtests.simulator import running
from router.config.watcher import SettingsWatcher
from tests.support.deployment import gateway_of, listening, tasks, until

Name = examples.Name | Literal["openai_node"]
_HERE: Final = Path(__file__).parent
_NODE: Final = {"openai_node": _HERE / "openai_node", "node_service": EXAMPLES / "node_service"}
_ORDER: Final = re.compile(r"order (\d+): (\d+ g of \w+)")


@dataclass
class Service:
    """The process of an example, and what it has written to its standard error."""

    process: asyncio.subprocess.Process
    told: str = ""
    listens: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ordered(self) -> list[str]:
        """What its tool has ordered, counted where it is done."""
        return [goods for _, goods in dict(_ORDER.findall(self.told)).items()]

    def kill(self) -> None:
        """Kill it, as where its machine is gone."""
        self.process.kill()

    async def read(self) -> None:
        """Read what it writes, to its end."""
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.told += line.decode()
            if "http://127.0.0.1" in self.told:
                self.listens.set()
        await self.process.wait()
        self.listens.set()


@dataclass(frozen=True)
class Assistants:
    """Two services and the router in front of them; a flow is asked at its name."""

    url: str
    services: Services
    session: aiohttp.ClientSession
    legacy: Service
    graph: Service
    shop: Service
    database: Path
    ports: Ports

    def orders(self) -> list[str]:
        """Return the rows of the shop's table."""
        with closing(sqlite3.connect(self.database)) as connection:
            rows = connection.execute("SELECT grams, item FROM orders ORDER BY id").fetchall()
        return [f"{grams} g of {item}" for grams, item in rows]

    def done(self) -> list[str]:
        """Return what tools have ordered, in whichever process they run."""
        return [goods for one in (self.legacy, self.graph, self.shop) for goods in one.ordered]

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
    legacy: Name = "openai_service",
    rung: Rung = 2,
    percent: Literal[0, 100] = 0,
    model: str = "sim-chat",
    history: Literal["shared", "own"] = "shared",
) -> AsyncIterator[Assistants]:
    """Start two services, the shop and, in `folder`, a router with the gateway.

    The flow `clean` leads to both as they are on their rung, the flow of a variant to an openai
    service in which the first text is replaced by the second. Either legacy serves all, in the
    shadow of graph, or graph does, alone.
    """
    async with AsyncExitStack() as opened:
        enter = opened.enter_async_context
        provider = await enter(running())
        ports = Ports(*(opened.enter_context(own_port()) for _ in range(5)))
        flows = {"clean": PATH, **{name: f"/{name}{PATH}" for name in variants}}
        path = folder / "cutover.toml"
        shares = Shares(percent, 100 - percent)
        path.write_text(
            configuration(
                ports,
                provider.base_url,
                shares,
                flows=flows,
                rung=rung,
                model=model,
                history=history,
            ),
            "utf-8",
        )
        environ = {
            "OPENAI_API_KEY": KEY if rung > 1 else "none",
            "OPENAI_BASE_URL": provider.base_url,
            "SHOP_FILE": str(folder / "shop.sqlite"),
        }
        commands = (
            _command(legacy, folder, ports.legacy, rung, ports.places, variants),
            _command(graph, folder, ports.graph, rung, ports.places),
            shop_command(ports.shop),
        )
        first, second, third = await asyncio.gather(
            *(enter(_process(arguments, folder, environ)) for arguments in commands)
        )
        keys = {"OPENAI_API_KEY": "none", "GATEWAY_KEY": KEY}
        built = await enter(application(SettingsWatcher(path, SPECS), keys))
        url = await enter(listening(server(built.app, built.services.router, 1), ports.router))
        await enter(gateway_of(built, url, ports.gateway))
        session = await enter(aiohttp.ClientSession())
        rows = folder / "shop.sqlite"
        yield Assistants(url, built.services, session, first, second, third, rows, ports)


@asynccontextmanager
async def restarted(
    both: Assistants,
    folder: Path,
    graph: Name,
    *,
    rung: Rung = 2,
    change: tuple[str, str] | None = None,
    key: str = KEY,
) -> AsyncIterator[Path]:
    """Start graph anew beside the router, with one text replaced by another.

    Yields a configuration: the router's but for graph's address, and a gateway's where none is.
    """
    again = folder / "again"
    shutil.rmtree(again, ignore_errors=True)
    again.mkdir()
    with own_port() as port, own_port() as behind:
        ports = replace(both.ports, gateway=behind, graph=port)
        text = (folder / "cutover.toml").read_text("utf-8")
        for name in ("graph", "gateway"):
            old, new = getattr(both.ports, name), getattr(ports, name)
            text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
        config = again / "cutover.toml"
        config.write_text(text, "utf-8")
        arguments = _command(graph, again, port, rung, ports.places)
        if change is not None:
            file = next((again / graph).glob("service.*"))
            written = file.read_text("utf-8")
            assert change[0] in written
            file.write_text(written.replace(*change), "utf-8")
        # Nothing may be asked but the gateway.
        environ = {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": "http://127.0.0.1:9"}
        environ |= {"SHOP_FILE": str(both.database)}
        async with _process(arguments, again, environ):
            yield config


def needs_node(name: Name) -> None:
    """Skip where a service in Node.js is asked for, and there is no Node.js or no packages."""
    folder = _NODE.get(name)
    if folder and (shutil.which("node") is None or not (folder / "node_modules").exists()):
        pytest.skip(f"no node, or no `npm ci` in {folder.relative_to(EXAMPLES.parent)}")


def _command(
    name: Name,
    folder: Path,
    port: int,
    rung: Rung,
    places: Mapping[str, str],
    variants: Mapping[str, tuple[str, str]] | None = None,
) -> list[str]:
    """Return what starts a service, with its variants below it."""
    if name == "openai_node":
        gateway, _ = places.values()
        return ["node", str(_NODE[name] / "service.mjs"), str(port), f"{gateway}/v1", KEY]
    file = patched(name, folder, rung, places)
    if variants:
        text = file.read_text("utf-8")
        for variant, (written, instead) in variants.items():
            assert written in text, written
            (folder / variant).mkdir()
            (folder / variant / "service.py").write_text(text.replace(written, instead), "utf-8")
        return [sys.executable, str(_HERE / "mounted.py"), str(port), name, *variants]
    return command(name, file, port)


@asynccontextmanager
async def _process(
    command: Sequence[str], folder: Path, environ: Mapping[str, str]
) -> AsyncIterator[Service]:
    """Run a service until it is done with; it listens once it has said where."""
    null, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env={**os.environ, **environ}, stdout=null, stderr=pipe
    )
    service = Service(process)
    reading = asyncio.create_task(service.read())
    try:
        await service.listens.wait()
        assert process.returncode is None, service.told
        yield service
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading
    assert "Traceback" not in service.told, service.told
