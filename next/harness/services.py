"""Declared flows and the services behind them, as a configuration names them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import typer

from cutover.flow import Flow
from cutover.wire import Dialect, DialectRefused, find_dialect, read_dialect
from harness.config import FlowTable, Settings
from router.driver import Candidate
from router.gateway.runs import OpenRuns
from router.services import Address, Service, ServiceFlow, open_session
from rules.flows import FLOWS


@dataclass(frozen=True, slots=True)
class Services:
    """The connections to services, and how their calls come back."""

    session: aiohttp.ClientSession
    runs: OpenRuns = field(default_factory=OpenRuns)
    gateway: str = ""
    """The address of this process' gateway; "" without one."""
    gateway_key: str = ""
    apps: Mapping[str, str] = field(default_factory=dict)
    """URLs by stack of the services that this process has started."""


@asynccontextmanager
async def open_services(
    settings: Settings, apps: Mapping[str, str] | None = None
) -> AsyncIterator[Services]:
    """Open what services are asked through."""
    key = settings.gateway.key if settings.gateway else ""
    async with open_session() as session:
        yield Services(session, gateway=settings.gateway_url, gateway_key=key, apps=apps or {})


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
    found: dict[str, Candidate] = {}
    for name, at in settings.stacks.items():
        limits = at.silence_seconds, at.total_seconds
        url = services.apps.get(name) or at.url
        address = Address(url, *limits, headers=at.headers, shadow_safe=at.shadow_safe)
        form = dialect(table.dialect)
        back = services.runs, services.gateway, services.gateway_key
        service = Service(address, form, services.session, *back)
        found[name] = Candidate(name, service, remote=True, shadow_safe=at.shadow_safe)
    return found
