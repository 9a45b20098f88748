"""The gateway of a replay: it answers services from the tape, where a router's would listen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import uvloop

from contract.flows import SPECS
from cutover.application import mount_gateway, open_entrance
from cutover.probe import NotReached, reach
from cutover.replay.journal import ReplayJournal, ReplayMisused
from cutover.replay.parts import Part
from cutover.replay.pool import Terms
from cutover.replay.replayer import PartJob, PartResult, Replayer, replay_part
from cutover.replay.services import ReplayedExchanges, ReplayedService, ServicePlan
from cutover.replay.sides import Sides
from cutover.server.serve import GatewayServer, server_configuration
from cutover.server.sockets import PortTaken, listen
from cutover.wiring.models import model_entries, rescue_policy
from cutover.wiring.tools import open_tool_servers, tool_server
from effects.model import ModelRegistry, RescuingModel
from router.config.schema import McpServerSettings
from router.gateway import Gateway
from router.http.app import create_bare_app
from router.http.connection import BodyMemory
from router.remote import RemoteStack
from router.stack import StackName

if TYPE_CHECKING:
    from effects.tools.mcp import McpConnection

T = TypeVar("T")


class GatewayTaken(ReplayMisused):
    """The gateway cannot listen where services call it."""

    def __init__(self, taken: PortTaken) -> None:
        super().__init__(
            f"{taken}. The gateway answers services there: if the router runs, stop it for the "
            "time of the replay, or replay with a --config of another [gateway] listen and a "
            "service that calls that"
        )


class ServiceAway(ReplayMisused):
    """No server listens at the address of a service."""

    def __init__(self, name: str, away: NotReached) -> None:
        super().__init__(f"[stacks] {name}: {away}; start the service with the code to be replayed")


class ToolServerAway(ReplayMisused):
    """A server of MCP cannot be asked for what is on no tape."""

    def __init__(self, name: str, why: object) -> None:
        super().__init__(
            f"[tools.mcp] {name} is away ({why}): which tools it has, and which of them only read, "
            "is on no tape; start it, none of them will be called"
        )


@dataclass(frozen=True, slots=True)
class OpenServices:
    """The services of a replay, and their exchanges that are open."""

    stacks: Mapping[StackName, ReplayedService]
    exchanges: ReplayedExchanges


@asynccontextmanager
async def open_services(plan: ServicePlan, sides: Sides) -> AsyncIterator[OpenServices]:
    """Connect to the services and listen for their calls, for as long as the block lasts.

    Raises `ReplayMisused` where one is away, a server of MCP is, or the gateway's address is taken,
    and what `open_entrance` raises.
    """
    settings, requested = plan.settings, sides.requested
    exchanges = ReplayedExchanges(settings)
    host, port = settings.gateway.address or (settings.server.host, settings.server.port)
    entrance = open_entrance(
        settings, plan.environ, host, exchanges, on_outside=exchanges.count_outside
    )
    async with AsyncExitStack() as stack:
        try:
            listening = stack.enter_context(listen(host, port))
        except PortTaken as taken:
            raise GatewayTaken(taken) from taken
        if requested.address is not None:
            try:
                await reach(requested.address.url)
            except NotReached as away:
                raise ServiceAway(requested.name, away) from away
        # No provider is called: models are listed, without their keys.
        keys = {one.key_env: "none" for one in settings.providers.values()}
        models = ModelRegistry(model_entries(settings, keys))
        stack.push_async_callback(models.aclose)
        gateway = Gateway(entrance, RescuingModel(models, rescue_policy(settings.rescue)), models)
        reached = settings.gateway.tool_servers
        configured = [
            tool_server(name, section, plan.environ, {})
            for name, section in settings.tools.mcp.items()
            if name in reached
        ]
        app = create_bare_app("cutover replay", BodyMemory(exchanges.settings))
        servers = open_tool_servers(configured, stack) if configured else ()
        for server in servers:
            await _connected(server, settings.tools.mcp[server.name])
        await mount_gateway(app, gateway, servers, stack)
        serving = GatewayServer(server_configuration(app)).serving([listening])
        await stack.enter_async_context(serving)
        services: dict[StackName, ReplayedService] = {}
        for side in (requested, sides.other):
            if side.address is not None and side.address.shadow_safe:
                remote = RemoteStack.open(side.name, side.address)
                opened = await stack.enter_async_context(remote)
                services[side.name] = ReplayedService(opened, exchanges, plan.headers)
        yield OpenServices(services, exchanges)


async def _connected(server: McpConnection, section: McpServerSettings) -> None:
    """Wait for a server's list of tools; raises `ToolServerAway`."""
    try:
        if section.url:
            await reach(section.url)  # known at once, where it is not started
        async with asyncio.timeout(section.connect_seconds):
            while server.session is None:
                await server.changed()
    except (NotReached, TimeoutError) as away:
        raise ToolServerAway(server.name, str(away) or "no answer") from away


@contextmanager
def services_replayed(
    terms: Terms, services: ServicePlan, journal: ReplayJournal
) -> Iterator[Callable[[Part], PartResult]]:
    """Return what replays a part on services, in this process; one after the other.

    Raises what `open_services` raises.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        block = _HeldBlock(open_services(services, terms.sides))
        opened = runner.run(block.enter())
        try:
            replayer = Replayer(terms.sides, terms.options, SPECS, opened.stacks, journal.turns)

            def replay_one(part: Part) -> PartResult:
                job = PartJob(part, services.at_once, sent=journal.begin(part))
                result = runner.run(replay_part(job, replayer, lambda *_: None))
                result.counts.outside = opened.exchanges.take_outside()
                return result

            yield replay_one
        finally:
            runner.run(block.exit())


class _HeldBlock(Generic[T]):
    """An asynchronous context that stays open between coroutines that a runner runs.

    It is entered and left in one task, as task groups demand.
    """

    def __init__(self, block: AbstractAsyncContextManager[T]) -> None:
        self._block = block
        self._leave = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def enter(self) -> T:
        """Enter the block; raises what that raises."""
        loop = asyncio.get_running_loop()
        entered: asyncio.Future[T] = loop.create_future()
        self._task = loop.create_task(self._hold(entered), name="services")
        self._task.add_done_callback(lambda _: entered.cancel())
        await asyncio.wait({entered})
        if entered.cancelled():
            await self._task
        return entered.result()

    async def exit(self) -> None:
        """Leave the block."""
        self._leave.set()
        if self._task is not None:
            await self._task

    async def _hold(self, entered: asyncio.Future[T]) -> None:
        async with self._block as value:
            entered.set_result(value)
            await self._leave.wait()
