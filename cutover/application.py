"""The application: a router that follows its configuration, its HTTP side, and its faults."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI

from contract.errors import CutoverError
from cutover.flows import settings_at
from cutover.wiring.addresses import SINGLE_WORKER, WorkerGroup, store_addresses
from cutover.wiring.composition import Services, model_faults, open_services
from cutover.wiring.gate_verdicts import gate_verdicts
from cutover.wiring.history import HistoryWriter, follow_history
from cutover.wiring.models import model_entries, rescue_policy
from cutover.wiring.periodic import counting_pauses
from effects.memory.search import LongTermMemory
from effects.stores import PauseTotals
from router.admin.audit import write_audit
from router.admin.auth import AdminTokens, read_tokens
from router.admin.operations import Operations, add_admin
from router.config.addresses import check_advertised, on_loopback, resolve_value
from router.config.schema import Settings
from router.config.watcher import SettingsWatcher
from router.gateway import (
    EffectApi,
    Entrance,
    Gateway,
    OpenExchanges,
    WorkerPeers,
    add_effects,
    add_gateway,
    add_signposts,
)
from router.gateway.hosts import KnownHosts
from router.http.app import create_app, create_bare_app
from router.serving.stack import Stack
from router.stack import StackName
from router.telemetry.instruments import MetricSources
from router.telemetry.watchdog import Watchdog

if TYPE_CHECKING:
    from effects.tools.mcp import McpConnection

log = logging.getLogger(__name__)


class GatewayUnguarded(CutoverError):
    """The gateway has no key, and others can reach it."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"the gateway needs a key on {host!r}, where others can reach it: "
            "name its variable in [gateway] key_env"
        )


class GatewayKeyMissing(CutoverError):
    """The variable of the gateway's key is not set."""

    def __init__(self, variable: str) -> None:
        super().__init__(f"the gateway needs its key in the variable {variable!r}")


class HostsNotShared(CutoverError):
    """Other hosts are to find the gateway, and nothing is shared with them."""

    def __init__(self, shared: str) -> None:
        super().__init__(
            "[gateway] advertise needs [stores] shared_state in Redis, where other routers find "
            f"this one; it is {shared.partition('://')[0]!r}"
        )


class AdvertisedNowhere(CutoverError):
    """What a variable holds is no address at which others reach the gateway."""

    def __init__(self, why: str) -> None:
        super().__init__(f"[gateway] advertise: {why}")


@dataclass(frozen=True, slots=True)
class Application:
    """The ASGI application, the services behind it, and the watchdog of the loop, not yet on.

    `gateway` is the application of the gateway's own listener, where it has one.
    """

    app: FastAPI
    gateway: FastAPI | None
    services: Services
    watchdog: Watchdog


@asynccontextmanager
async def application(
    watched: SettingsWatcher | None,
    environ: Mapping[str, str],
    stacks: Mapping[StackName, Stack] | None = None,
    host: str | None = None,
    workers: WorkerGroup = SINGLE_WORKER,
    debugged: frozenset[str] = frozenset(),
) -> AsyncIterator[Application]:
    """Open the services of the watched configuration (None: the defaults) and build the HTTP side.

    `host` overrides the configured address to listen on; `workers` share this host's stores.
    `debugged` are ids of exchanges, messages or sessions whose steps are logged.
    """
    current = in_force(watched)
    first = current()
    host = host or first.server.host
    tokens = admin_tokens(first, environ, host)
    async with AsyncExitStack() as stack:
        services = await stack.enter_async_context(
            open_services(current, environ, stacks, workers, debugged)
        )
        watchdog = Watchdog(first.limits.loop_seconds or math.inf)
        history = None
        if watched is not None:
            watched.started = first  # a worker that is replaced starts later than the supervisor
            watched.on_change(_ModelUpdater(services, environ))
            history = await follow_history(watched, environ, services.faults, stack)
            if history is not None and services.router.assigner.flags is not None:
                history.follow(services.router.assigner.flags)

        sources_of_faults: dict[str, object] = {}

        def faults() -> Mapping[str, str]:
            return _faults(services, watched, watchdog, sources_of_faults)

        page = None
        if services.metrics is not None:
            memory, waiting = services.live.memory, dict[str, PauseTotals]()
            if services.router.pauses is not None:
                store = services.router.pauses.store
                await stack.enter_async_context(counting_pauses(store, waiting))
            sources = MetricSources(
                services.router,
                lambda: services.captures.counts,
                faults,
                lambda: watched.refused if watched is not None else 0,
                services.model,
                memory if isinstance(memory, LongTermMemory) else None,
                lambda: gate_verdicts(Path(current().ramp.state), current().flows, time.time()),
                lambda: waiting,
            )
            page = await stack.enter_async_context(services.metrics.running(sources))
        write = None if page is None else page.page
        app = create_app(services.router, faults, write, services.sessions.of)
        if watched is not None and tokens is not None:
            _add_operations(app, services, watched, environ, tokens, history)
        neighbours = workers.neighbours
        if neighbours is not None and first.gateway.advertise:
            hosts = _known_hosts(first, environ, neighbours.name, stack)
            neighbours.hosts = sources_of_faults["gateway_hosts"] = hosts
            await stack.enter_async_context(hosts.announced())
        gateway = open_gateway(services, environ, host, neighbours)
        own = None
        if gateway is not None:
            if first.gateway.address is not None:
                own = create_bare_app("cutover gateway", app.state.body_memory)
                add_signposts(app)
            names = first.gateway.tool_servers
            servers = [one for one in services.live.servers if one.name in names]
            await mount_gateway(own or app, gateway, servers, stack)
        yield Application(app, own, services, watchdog)


async def mount_gateway(
    app: FastAPI, gateway: Gateway, servers: Sequence[McpConnection], stack: AsyncExitStack
) -> None:
    """Mount all that the configuration opens of the gateway; tool servers end with `stack`."""
    add_gateway(app, gateway)
    if gateway.entrance.exchanges.settings().gateway.effects:
        add_effects(app, EffectApi(gateway.entrance))
    if servers:
        library = import_module("router.gateway.tool_servers")  # the SDK takes a second to import
        tools = library.ToolServers(gateway.entrance, {one.name: one for one in servers})
        await stack.enter_async_context(tools.running())
        library.add_tool_servers(app, tools)


def _known_hosts(
    settings: Settings, environ: Mapping[str, str], name: str, stack: AsyncExitStack
) -> KnownHosts:
    """Return the gateways of other hosts, which find this one, too; closed with `stack`.

    Raises `HostsNotShared` and `AdvertisedNowhere`.
    """
    shared = store_addresses(settings, environ, 1).shared_state
    if not shared.startswith(("redis://", "rediss://")):
        raise HostsNotShared(shared)
    hosts = import_module("effects.stores.gateway_hosts").RedisGatewayHosts(shared)
    stack.push_async_callback(hosts.aclose)
    advertised = resolve_value(settings.gateway.advertise, environ)
    try:
        check_advertised(advertised)
    except ValueError as error:
        raise AdvertisedNowhere(str(error)) from error
    return KnownHosts(hosts, name, advertised)


def in_force(watched: SettingsWatcher | None) -> Callable[[], Settings]:
    """Return a function that returns the settings in force."""
    if watched is not None:
        return watched.settings
    defaults = settings_at(None)
    return lambda: defaults


def _faults(
    services: Services,
    watched: SettingsWatcher | None,
    watchdog: Watchdog,
    more: Mapping[str, object],
) -> Mapping[str, str]:
    """Return what is wrong now, by part."""
    assigner = services.router.assigner
    sources: dict[str, object] = {
        "configuration": watched,
        "pins": assigner.pins.lookup,
        "flags": assigner.flags,
        "shared_state": services.state_sync,
        "locks": services.live.locks,
        "event_loop": watchdog,
        "captures": services.captures,
        "shadow_workers": services.router.shadows.workers,
        **services.stores,
        **more,
    }
    current = {part: getattr(source, "fault", None) for part, source in sources.items()}
    current["restart"] = watched.restart if watched is not None else None
    return services.faults | {part: fault for part, fault in current.items() if fault}


class _ModelUpdater:
    """Puts changed models in force when the configuration changes."""

    def __init__(self, services: Services, environ: Mapping[str, str]) -> None:
        self._services = services
        self._environ = environ
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, settings: Settings) -> None:
        """Take new settings; models that cannot be used are a fault."""
        services = self._services
        policy = rescue_policy(settings.rescue)
        services.model.policy = services.shadow_model.model.policy = policy
        services.faults.pop("models", None)
        try:
            entries = model_entries(settings, self._environ)
        except CutoverError as error:
            log.error("models stay as they are: %s", error)
            services.faults["models"] = str(error)
            return
        services.faults.update(model_faults(entries, settings, services.router.local_flows))
        for registry in (services.models, services.shadow_model.registry):
            registry.put(entries)
            task = asyncio.get_running_loop().create_task(registry.close_unwanted())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def admin_tokens(settings: Settings, environ: Mapping[str, str], host: str) -> AdminTokens | None:
    """Return the tokens of the admin API on a listening address; None where it is not offered.

    Raises `TokensUnusable` where tokens are configured that cannot be used.
    """
    section = settings.admin
    if not section.token_env:
        return None
    tokens = read_tokens(environ.get(section.token_env, ""), section.token_env)
    if not section.anywhere and not on_loopback(host):
        why = "/admin does not answer: %s is not loopback, and [admin] anywhere is not set"
        log.warning(why, host)
        return None
    return tokens


def _add_operations(
    app: FastAPI,
    services: Services,
    watched: SettingsWatcher,
    environ: Mapping[str, str],
    tokens: AdminTokens,
    history: HistoryWriter | None,
) -> None:
    operations = Operations(
        services.router,
        services.models,
        services.model,
        services.recent,
        watched,
        partial(write_audit, Path(watched.settings().admin.audit_path)),
        partial(model_entries, environ=environ),
        None if history is None else history.tool_changed,
    )
    add_admin(app, operations, tokens)


def open_gateway(
    services: Services,
    environ: Mapping[str, str],
    host: str,
    neighbours: WorkerPeers | None = None,
) -> Gateway | None:
    """Return the gateway of a router that listens on `host`; None where it is not enabled.

    A gateway with an address of its own is reached there alone. Raises what `open_entrance` raises.
    """
    settings = services.router.settings()
    if not settings.gateway.enabled:
        return None
    reached, _ = settings.gateway.address or (host, 0)
    entrance = open_entrance(settings, environ, reached, services.router, neighbours)
    return Gateway(entrance, services.model, services.models)


def open_entrance(
    settings: Settings,
    environ: Mapping[str, str],
    host: str,
    exchanges: OpenExchanges,
    neighbours: WorkerPeers | None = None,
    on_outside: Callable[[], object] | None = None,
) -> Entrance:
    """Return the entrance of a gateway that is reached on `host`.

    Raises `GatewayUnguarded` or `GatewayKeyMissing` where it must not be opened.
    """
    section = settings.gateway
    if not section.key_env and not on_loopback(host):
        raise GatewayUnguarded(host)
    key = environ.get(section.key_env, "")
    if section.key_env and not key:
        raise GatewayKeyMissing(section.key_env)
    return Entrance(exchanges, key.encode(), section.max_body_bytes, neighbours, on_outside)
