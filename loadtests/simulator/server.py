"""The simulator on a socket of this process."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from uvicorn import Config
from uvicorn.server import ServerState

from loadtests.simulator.app import Simulator
from loadtests.simulator.connection import Connection
from loadtests.simulator.ledger import Ledger
from loadtests.simulator.profile import Profile

HOST = "127.0.0.1"
BACKLOG = 2_048


class Served(msgspec.Struct, frozen=True):
    """A running simulator: where it is, and its ledger."""

    url: str
    ledger: Ledger

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"{self.url}/v1"


@asynccontextmanager
async def running(
    profile: Profile | None = None, port: int = 0, *, api_key: str | None = None
) -> AsyncIterator[Served]:
    """Serve on loopback; port 0 takes a free one. On leaving, open answers break off.

    uvicorn's protocol is used without uvicorn's server: that one ticks ten times a second, waits
    for answers that never end, and takes over the signals of the process.
    """
    simulator = Simulator(profile, api_key)
    state = ServerState()
    server = await _listen(simulator, state, port)
    try:
        yield Served(f"http://{HOST}:{_port(server)}", simulator.ledger)
    finally:
        server.close()
        await _break_off(state)


async def _listen(simulator: Simulator, state: ServerState, port: int) -> asyncio.Server:
    config = Config(
        simulator,
        http=Connection,
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
        lambda: Connection(config, state, {}, loop),
        HOST,
        port,
        backlog=BACKLOG,
        family=socket.AF_INET,
    )


def _port(server: asyncio.Server) -> int:
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
