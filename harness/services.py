"""Declared flows and the services behind them, as a configuration names them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import typer

from cutover.flow import Flow
from cutover.wire import Dialect, DialectRefused, find_dialect, read_dialect
from harness.config import FlowTable, Settings
from harness.server.apps import started
from router.driver import Candidate
from router.gateway.runs import OpenRuns
from router.services import Address, Service, ServiceFlow, open_session
from rules.flows import FLOWS


@dataclass(frozen=True, slots=True)
class Services:
    """What all services share: connections to them, and the runs that their calls belong to."""

    session: aiohttp.ClientSession
    apps: Mapping[str, str]
    """URLs by stack of the services that this process has started."""
    runs: OpenRuns = field(default_factory=OpenRuns)
    """Shared with the gateway, where services send what they ask of models and the tape."""


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Start the services that are configured as an `app`, and open the connections to all."""
    async with AsyncExitStack() as opened:
        apps: dict[str, str] = {
            name: await opened.enter_async_context(started(stack.app))
            for name, stack in settings.stacks.items()
            if stack.app
        }
        yield Services(await opened.enter_async_context(open_session()), apps)


def flow_of(name: str, settings: Settings) -> Flow:
    """Return a flow: a built-in one, or one that its table declares; raises `DialectRefused`."""
    table = settings.flows[name]
    if not table.paths:
        return FLOWS[name]
    routes = dict.fromkeys(table.paths, tuple(table.methods))
    return ServiceFlow(
        name, routes, dialect(table.dialect), table.keys, settings.limits.event_bytes
    )


def chosen(flows: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """Return the flows that a command names, or all; raises `typer.BadParameter`."""
    for flow in flows:
        if flow not in known:
            message = f"no flow {flow!r}: there are {', '.join(known)}"
            raise typer.BadParameter(message)
    return flows or known


def dialect(named: str) -> Dialect:
    """Return a dialect by its name, or by the path of its file; raises `DialectRefused`."""
    path = Path(named)
    if not path.suffix:
        return find_dialect(named)
    try:
        return read_dialect(path.read_text("utf-8"), named)
    except (OSError, UnicodeDecodeError) as error:
        raise DialectRefused(named, "", f"not readable: {error}") from error


def candidates(settings: Settings, table: FlowTable, services: Services) -> Mapping[str, Candidate]:
    """Return the services that may serve a declared flow."""
    form, found = dialect(table.dialect), dict[str, Candidate]()
    for name, stack in settings.stacks.items():
        service = Service(
            Address(
                services.apps.get(name, stack.url),
                stack.silence_seconds,
                stack.total_seconds,
                headers=stack.headers,
                shadow_safe=stack.shadow_safe,
            ),
            form,
            services.session,
            services.runs,
            settings.gateway_url,
            settings.gateway.key if settings.gateway else "",
        )
        found[name] = Candidate(name, service, remote=True, shadow_safe=stack.shadow_safe)
    return found
