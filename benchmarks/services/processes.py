"""The processes of a deployment of two example services: each may be killed and started again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.services.examples import (
    KEY,
    Name,
    Ports,
    Shares,
    command,
    configuration,
    patched,
    shop_command,
)
from contract.errors import CutoverError
from loadtests.processes import child_environment, module_command, own_port
from loadtests.simulator import Profile, spawn

STARTS_S: Final = 60.0
_LOOKS_S: Final = 0.02
_SHOP_FILE: Final = "shop.sqlite"
# An order takes this long behind its row: what dies meanwhile has ordered, and has not said so.
_SLOW: Final = {
    "openai_service": ('    log.info("order', "    await asyncio.sleep(0.1)\n"),
    "node_service": ("  console.error(`order", "  await new Promise((r) => setTimeout(r, 100));\n"),
}
# The longest silences: a process that stands still is given up soon.
_LIMITS: Final = "connect_seconds = 1.0\nfirst_event_seconds = 4.0\nidle_seconds = 2.0"
_MORE: Final = """
[captures]
path = "{folder}/captures"
flush_seconds = 0.1

[stores]
conversations = "sqlite:///{folder}/router.sqlite"
memory = "memory://"
pauses = "sqlite:///{folder}/router.sqlite"
checkpoints = "memory://"

[exchanges]
journal = true

[admin]
audit_path = "{folder}/audit.jsonl"

[breaker]
open_seconds = 1.0
"""


class NotStarted(CutoverError):
    """A process has ended, or does not listen, long after it was started."""

    def __init__(self, name: str, log: Path) -> None:
        end = log.read_text("utf-8", "replace")[-1_000:]
        super().__init__(f"{name!r} does not listen; its log ends {end!r}")


@dataclass
class Member:
    """A process of the deployment; its log is beside its files."""

    name: str
    command: Sequence[str]
    ports: Sequence[int]
    folder: Path
    environ: Mapping[str, str]
    kills: int = field(default=0, init=False)
    stops: int = field(default=0, init=False)
    """Each counted twice: when it begins to end, and when it listens again; odd in between."""
    killed_at: list[float] = field(default_factory=list, init=False)
    """Seconds of the loop's clock."""
    _running: asyncio.subprocess.Process | None = field(default=None, init=False)

    @property
    def log(self) -> Path:
        """What it writes."""
        return self.folder / f"{self.name}.log"

    async def start(self) -> None:
        """Start it, and wait until it listens; raises `NotStarted`."""
        with self.log.open("ab") as log:
            self._running = await asyncio.create_subprocess_exec(
                *self.command,
                cwd=self.folder,
                env=child_environment(**self.environ),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        for port in self.ports:
            await self._listens(port, self._running)
        self.kills += self.kills % 2
        self.stops += self.stops % 2

    async def kill(self) -> None:
        """Kill it, as where its machine is gone, and wait for its end."""
        self.kills += 1
        self.killed_at.append(asyncio.get_running_loop().time())
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        self.stops += 1
        await self._end(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self._running is not None and self._running.returncode is None:
            self._running.send_signal(number)

    async def _end(self, number: signal.Signals) -> None:
        self.send(number)
        if self._running is not None:
            await self._running.wait()

    async def _listens(self, port: int, running: asyncio.subprocess.Process) -> None:
        deadline = asyncio.get_running_loop().time() + STARTS_S
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                late = asyncio.get_running_loop().time() > deadline
                if late or running.returncode is not None:
                    raise NotStarted(self.name, self.log) from None
                await asyncio.sleep(_LOOKS_S)
            else:
                writer.close()
                return


@dataclass(frozen=True)
class Deployment:
    """A router in front of two services and their shop, all of them processes."""

    folder: Path
    url: str
    router: Member
    legacy: Member
    graph: Member
    shop: Member

    @property
    def orders(self) -> Path:
        """The shop's database."""
        return self.folder / _SHOP_FILE

    @property
    def captures(self) -> str:
        """Where the router records."""
        return str(self.folder / "captures")

    @property
    def audit(self) -> Path:
        """The router's audit."""
        return self.folder / "audit.jsonl"

    @property
    def journal(self) -> str:
        """The store of the router's journal."""
        return f"sqlite:///{self.folder}/router.sqlite"


@asynccontextmanager
async def deployed(
    folder: Path, legacy: Name, graph: Name, shares: Shares, profile: Profile
) -> AsyncIterator[Deployment]:
    """Start two services on the third rung, with the journal of writes; ends all processes."""
    async with AsyncExitStack() as opened:
        provider = opened.enter_context(spawn(profile)) + "/v1"
        ports = Ports(*(opened.enter_context(own_port()) for _ in range(5)))
        text = configuration(ports, provider, shares, limits=_LIMITS)
        config = folder / "cutover.toml"
        config.write_text(text + _MORE.format(folder=folder), "utf-8")
        environ = {"OPENAI_API_KEY": KEY, "SHOP_FILE": str(folder / _SHOP_FILE)}
        serve = module_command("cutover", "serve", "--config", str(config))
        members = (
            Member(
                "router",
                [*serve, "--port", str(ports.router)],
                (ports.router, ports.gateway),
                folder,
                {"OPENAI_API_KEY": "none", "GATEWAY_KEY": KEY},
            ),
            _service("legacy", legacy, ports.legacy, ports, folder, environ),
            _service("graph", graph, ports.graph, ports, folder, environ),
            Member("shop", shop_command(ports.shop), (ports.shop,), folder, environ),
        )
        async with asyncio.TaskGroup() as starting:
            for one in members:
                starting.create_task(opened.enter_async_context(_started(one)))
        yield Deployment(folder, f"http://127.0.0.1:{ports.router}", *members)


@asynccontextmanager
async def _started(member: Member) -> AsyncIterator[None]:
    try:
        await member.start()
        yield
    finally:
        await member.kill()


def _service(
    role: str, name: Name, port: int, ports: Ports, folder: Path, environ: Mapping[str, str]
) -> Member:
    file = patched(name, folder, 3, ports.places)
    if name in _SLOW:
        line, before = _SLOW[name]
        text = file.read_text("utf-8")
        text = text.replace(line, before + line, 1)
        file.write_text(text, "utf-8")
    return Member(role, command(name, file, port), (port,), folder, environ)
