"""A whole deployment inside the test's loop: simulated provider, router on a socket, a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
import zstandard

from contract.flows import SPECS
from contract.records import RunRecord, decode_run
from contract.wire.sse import SseDecoder
from cutover.application import Application, application
from cutover.server.serve import Server, server
from cutover.server.sockets import address, listen
from loadtests.simulator import Profile, Served, running
from router.config.watcher import SettingsWatcher
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from fastapi import FastAPI

    from cutover.wiring.composition import Services
    from router.serving.stack import Stack
    from router.stack import StackName

KEY = "CUTOVER_TEST_KEY"
PLANTED_KEY = "sk-planted-0123456789abcdefghijklmn"
QA_KEY = "CUTOVER_TEST_QA"
PERCENT = {"legacy": 0, "graph": 100}
_UNWATCHED = "[limits]\nloop_seconds = 0.0\n"

HELD_S = 10 * PATIENCE_S
"""Seconds for which a test may hold an answer back while it waits for other things."""

Json = Any


@dataclass(slots=True)
class Deployment:
    """A running deployment, and what tests ask of it."""

    url: str
    folder: Path
    services: Services
    app: FastAPI
    watched: SettingsWatcher
    provider: Served
    session: aiohttp.ClientSession
    gateway: str
    """The address of the gateway, where there is one: its own, or the router's."""

    def post(self, body: Json, **more: Any) -> Any:
        """Ask the chat flow; a `body` of bytes is sent as it is."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return self.session.post(f"{self.url}/chat/sse", data=data, **more)

    async def ask(self, body: Json, **more: Any) -> Answer:
        """Ask the chat flow and read everything; the message is free again afterwards."""
        async with self.post(body, **more) as response:
            answer = Answer(response.status, response.headers, await response.read())
        concluding = f"close {response.headers.get('x-cutover-exchange')}"
        await until(lambda: not tasks(concluding))
        return answer

    async def get(self, path: str) -> Json:
        """Read a page of JSON."""
        async with self.session.get(self.url + path) as response:
            return await response.json()

    async def settled(self) -> None:
        """Wait until every exchange has been concluded, shadowed or not, and its line written."""
        await until(lambda: not self.services.router.ledger.open and not tasks("close"))

    async def lines(self) -> list[RunRecord]:
        """Return all runs captured so far."""
        await self.settled()
        await self.services.captures.flush()
        return [decode_run(line) for line in captured(self.folder, "flow=*").splitlines()]

    async def run(self) -> RunRecord:
        """Return the one run captured so far."""
        (record,) = await self.lines()
        return record

    def books(self) -> dict[str, int]:
        """Return the ledger as `state(reason)` to how many."""
        counts = self.services.router.ledger.counts
        return {f"{line.state}({line.reason})": count for line, count in counts.items()}

    @property
    def model_calls(self) -> int:
        """How often the provider was asked."""
        return sum(self.services.model.counts.attempts.values())

    def edit(self, text: str) -> None:
        """Write the configuration anew and let the router see it."""
        self.watched.path.write_text(text, "utf-8")
        self.watched.poll_once()  # notices
        self.watched.poll_once()  # takes what has stayed the same


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def events(self) -> list[Json]:
        """The events' data, decoded."""
        return [msgspec.json.decode(event.data) for event in SseDecoder().feed(self.body)]

    @property
    def steps(self) -> list[str]:
        """The names of the chat events, repetitions of SEND left out."""
        names = [event["step"] for event in self.events]
        return [name for i, name in enumerate(names) if name != "SEND" or names[i - 1] != "SEND"]

    @property
    def problem(self) -> Json:
        """The problem the body holds."""
        assert self.headers["content-type"] == "application/problem+json"
        return msgspec.json.decode(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is deployed: who serves, how much is shadowed, other stacks.

    `more` is more configuration; `PROVIDER` in it is where the simulated provider is. Without
    `chat` its stacks lack the flow of that name. `others`
    is where memory and pauses are; `captures` and `server` are more of those sections,
    `captures_at` is a place of captures other than the folder.
    """

    stack: StackName = "legacy"
    shadow: float = 0
    more: str = ""
    chat: bool = True
    conversations: str = ""
    pins: str = "auto"
    locks: str = "auto"
    others: str = "memory://"
    pseudonym_key_env: str = ""
    lock_ttl: float = 60.0
    captures: str = ""
    captures_at: str = ""
    server: str = ""
    history: str = ""
    checkpoints: str = ""
    percent: float | None = None
    route_key: str = "message_id"
    cors_origin: str = ""
    drain_seconds: float = 5.0
    drain_write_seconds: float = 0.0
    profile: Profile | None = None
    stacks: Mapping[StackName, Stack] | None = None
    environ: Mapping[str, str] = field(default_factory=dict)

    def threads(self, folder: Path) -> str:
        """Return where the threads are: in a file where the other stores are in one."""
        kept = "memory://" if self.others == "memory://" else f"sqlite:///{folder}/threads.sqlite"
        return self.checkpoints or kept


def first_turn(message: str, model: str = "gpt-4.1") -> dict[str, Any]:
    """Return the first turn of a chat of its own."""
    return {
        "message_id": message,
        "chat_id": f"chat {message}",
        "content": "Hello",
        "model_config": {"model_id": model},
    }


def configuration(folder: Path, provider: str, setup: Setup) -> str:
    """Write a configuration that keeps everything in `folder`.

    Unless limits are set, a loop that stands still is not reported: that is the machine's affair.
    """
    return f"""
{"" if "[limits]" in setup.more else _UNWATCHED}
[flows.chat]
enable_langgraph = {str(setup.chat).lower()}
langgraph_percent = {PERCENT[setup.stack] if setup.percent is None else setup.percent}
shadow_percent = {setup.shadow}
route_key = "{setup.route_key}"

[flows.chat.options]
yield_interval = 0.0
wire = "extended"
lock_ttl = {setup.lock_ttl}

[server]
qa_key_env = "{QA_KEY}"
drain_seconds = {setup.drain_seconds}
drain_write_seconds = {setup.drain_write_seconds}
cors_origins = {[setup.cors_origin] if setup.cors_origin else []}
{setup.server}

[captures]
path = "{setup.captures_at or f"{folder}/captures"}"
pseudonym_key_env = "{setup.pseudonym_key_env}"
{setup.captures}

[stores]
conversations = "{setup.conversations or f"sqlite:///{folder}/store.sqlite"}"
memory = "{setup.others}"
pauses = "{setup.others}"
checkpoints = "{setup.threads(folder)}"
history = "{setup.history}"
pins = "{setup.pins}"
locks = "{setup.locks}"

[providers.simulated]
base_url = "{provider}"
key_env = "{KEY}"
connect_seconds = {PATIENCE_S}
idle_seconds = {HELD_S}

[models."gpt-4.1"]
provider = "simulated"
model = "sim-chat"

[models.slow]
provider = "simulated"
model = "sim-chat?rate=100&tokens=2000&limit=2000"
{setup.more.replace("PROVIDER", provider)}
"""


@asynccontextmanager
async def deployed(folder: Path, setup: Setup | None = None) -> AsyncIterator[Deployment]:
    """Start a deployment that keeps everything in a folder."""
    setup = setup or Setup()
    async with AsyncExitStack() as opened:
        provider = await opened.enter_async_context(running(setup.profile, api_key=PLANTED_KEY))
        path = folder / "cutover.toml"
        path.write_text(configuration(folder, provider.base_url, setup), "utf-8")
        watched = SettingsWatcher(path, SPECS)
        environ = {KEY: PLANTED_KEY, QA_KEY: "qa", **setup.environ}
        built = await opened.enter_async_context(application(watched, environ, setup.stacks))
        url = await opened.enter_async_context(
            listening(server(built.app, built.services.router, 1))
        )
        gateway = await opened.enter_async_context(gateway_of(built, url))
        opened.enter_context(built.watchdog.watching())
        # Every request on a connection of its own: what one leaves behind is the next one's not.
        connector = aiohttp.TCPConnector(force_close=True)
        session = await opened.enter_async_context(aiohttp.ClientSession(connector=connector))
        yield Deployment(
            url, folder, built.services, built.app, watched, provider, session, gateway
        )


@asynccontextmanager
async def gateway_of(built: Application, url: str, port: int = 0) -> AsyncIterator[str]:
    """Serve the gateway where it has an address of its own; gives the address, else `url`."""
    if built.gateway is None:
        yield url
        return
    async with listening(server(built.gateway, built.services.router, 1), port) as own:
        yield own


@asynccontextmanager
async def listening(uvicorn: Server, port: int = 0) -> AsyncIterator[str]:
    """Serve without uvicorn's loop, which ticks ten times a second and takes the signals."""
    uvicorn.config.load()
    uvicorn.lifespan = uvicorn.config.lifespan_class(uvicorn.config)
    own = listen("127.0.0.1", port)
    await uvicorn.startup([own])
    try:
        yield address(own)
    finally:
        for one in uvicorn.servers:
            one.close()
        for connection in list(uvicorn.server_state.connections):
            connection.shutdown()
        await until(lambda: not uvicorn.server_state.tasks)


async def until(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    """Let the loop turn until a condition holds: for what has no event to wait for."""
    async with asyncio.timeout(seconds):
        while not condition():
            await moment()


async def moment() -> None:
    """Wait a little: a loop that only turns takes the processor from what it waits for."""
    await asyncio.sleep(0.005)


def tasks(word: str) -> list[str]:
    """Return the names of the loop's tasks that begin with a word."""
    return [name for task in asyncio.all_tasks() if (name := task.get_name()).startswith(word)]


def captured(folder: Path, kind: str = "*") -> bytes:
    """Return everything captured below a folder, decompressed."""
    return b"".join(_plain(path) for path in segments(folder, kind))


def segments(folder: Path, kind: str = "*") -> list[Path]:
    """Return the files of captures below a folder."""
    return sorted((folder / "captures").glob(f"{kind}/**/*.zst"))


def _plain(path: Path) -> bytes:
    with path.open("rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        return reader.read()
