"""The simulator on a socket: of this process, or in a process of its own."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from loadtests.processes import server_process
from loadtests.simulator.app import Simulator
from loadtests.simulator.ledger import RequestLedger
from loadtests.simulator.profile import Profile, to_arguments

HOST = "127.0.0.1"
BACKLOG = 2_048


class SimulatorConnection(HttpToolsProtocol):
    """uvicorn's connection, reachable for the application as `scope["state"]["connection"]`."""

    lost_ns = 0

    def on_message_begin(self) -> None:
        """Begin a request, and let it reach this connection."""
        super().on_message_begin()
        self.scope["state"]["connection"] = self

    def connection_lost(self, exc: Exception | None) -> None:
        """Note when the connection was lost, by `time.monotonic_ns()`."""
        self.lost_ns = time.monotonic_ns()
        super().connection_lost(exc)

    def cut(self) -> None:
        """Close without a terminal chunk, after what was written has gone out."""
        self._abandon_answer()
        self.transport.close()

    def reset(self) -> None:
        """Drop at once, with whatever was not sent yet."""
        self._abandon_answer()
        self.transport.abort()

    def _abandon_answer(self) -> None:
        # Otherwise uvicorn takes the unfinished answer for a mistake and answers 500.
        self.cycle.disconnected = True


class Served(msgspec.Struct, frozen=True):
    """A running simulator: where it is, and its ledger."""

    url: str
    ledger: RequestLedger

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"{self.url}/v1"


@asynccontextmanager
async def running(
    profile: Profile | None = None,
    port: int = 0,
    *,
    host: str = HOST,
    api_key: str | None = None,
) -> AsyncIterator[Served]:
    """Serve, on loopback by default; port 0 takes a free one. On leaving, open answers break off.

    uvicorn's protocol is used without uvicorn's server: that one ticks ten times a second, waits
    for answers that never end, and takes over the signals of the process.
    """
    simulator = Simulator(profile, api_key)
    state = ServerState()
    server = await _listen(simulator, state, host, port)
    try:
        yield Served(f"http://{host}:{_server_port(server)}", simulator.ledger)
    finally:
        server.close()
        await _break_off(state)


async def _listen(simulator: Simulator, state: ServerState, host: str, port: int) -> asyncio.Server:
    config = Config(
        simulator,
        http=SimulatorConnection,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        # Providers keep idle connections for a minute or more; five seconds, the default, breaks
        # calls that are about to use one.
        timeout_keep_alive=75,
    )
    config.load()
    loop = asyncio.get_running_loop()
    return await loop.create_server(
        lambda: SimulatorConnection(config, state, {}, loop),
        host,
        port,
        backlog=BACKLOG,
        family=socket.AF_INET,
    )


def _server_port(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


async def _break_off(state: ServerState) -> None:
    for connection in list(state.connections):
        connection.transport.abort()
    # Losing its connection ends an answer; one that still goes on after that is cancelled.
    tasks = list(state.tasks)
    if tasks:
        _, stubborn = await asyncio.wait(tasks, timeout=1)
        for task in stubborn:
            task.cancel()
    await asyncio.sleep(0)


@contextmanager
def spawn(profile: Profile | None = None, *options: str) -> Iterator[str]:
    """Start a simulator in a process of its own; yields its address.

    `options` are more options of `python -m loadtests.simulator`. Raises `ServerDidNotStart`.
    """
    arguments = (*to_arguments(profile or Profile()), *options)
    with server_process("loadtests.simulator", *arguments) as process:
        yield process.url
