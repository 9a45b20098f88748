"""Declared flows and the services behind them, as a configuration names them."""

from __future__ import annotations

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
    """The connections to services, and how their calls come back."""

    session: aiohttp.ClientSession
    apps: Mapping[str, str]
    """URLs by stack of the services that this process has started."""
    runs: OpenRuns = field(default_factory=OpenRuns)


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Start the services that are named as `app`, and open what all are asked through."""
    async with AsyncExitStack() as opened:
        apps: dict[str, str] = {
            name: await opened.enter_async_context(started(at.app))
            for name, at in settings.stacks.items()
            if at.app
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
    """Return the flows that are named, all where none is; raises `typer.BadParameter`."""
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
    key = settings.gateway.key if settings.gateway else ""
    back = services.runs, settings.gateway_url, key
    for name, at in settings.stacks.items():
        url, safe = services.apps.get(name, at.url), at.shadow_safe
        limits = at.silence_seconds, at.total_seconds
        address = Address(url, *limits, headers=at.headers, shadow_safe=safe)
        service = Service(address, form, services.session, *back)
        found[name] = Candidate(name, service, remote=True, shadow_safe=safe)
    return found
