"""What `doctor` looks at: the services, the running router, the stores, the newest captures."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from cutover.errors import CutoverError
from cutover.records import RunRecord
from effects.database import Database
from harness.config import Settings
from harness.server.apps import started
from harness.services import flow_of
from harness.setup.trial import Example, Trial, ask, open_client
from router.captures import CaptureReader, Store
from router.services import ServiceFlow

NEWEST_FILES = 8
"""Files of a flow's captures that are read."""
STORE_SECONDS = 10.0


@dataclass(slots=True)
class Captured:
    """What the newest captures of a flow show."""

    without_key: Counter[str] = field(default_factory=Counter)
    """Requests that lack a route key, by its name."""
    runs: Counter[str] = field(default_factory=Counter)
    """Runs that served, one for each request, by stack."""
    recorded: Counter[str] = field(default_factory=Counter)
    """Those of them with calls on the tape."""
    escaped: Counter[str] = field(default_factory=Counter)
    """What shadows did past the tape, by name."""


@dataclass(slots=True)
class Survey:
    """All that is known of a set-up; a fault is a sentence, "" where there is none."""

    settings: Settings
    trials: dict[tuple[str, str], Trial] = field(default_factory=dict)
    """By flow and stack: how the flow's example is answered."""
    services: dict[str, str] = field(default_factory=dict)
    """Why a service does not answer, by stack."""
    status: Mapping[str, Any] | None = None
    """What the running router says of itself; None where none answers."""
    faults: dict[str, str] = field(default_factory=dict)
    """Why the gateway, the database, Redis or the captures cannot be used, by these names."""
    captured: dict[str, Captured] = field(default_factory=dict)
    """By flow."""

    @property
    def declared(self) -> Iterator[tuple[str, ServiceFlow]]:
        """The flows of services, by name."""
        for name in self.settings.flows:
            flow = flow_of(name, self.settings)
            if isinstance(flow, ServiceFlow):
                yield name, flow


async def survey(settings: Settings, headers: Mapping[str, str]) -> Survey:
    """Look at a set-up; each flow's example is sent to both services, beside some headers."""
    found, stores, captures = Survey(settings), settings.stores, settings.captures
    async with open_client() as client:
        found.status = await _status(client, settings)
        if settings.gateway is not None:
            trial = await ask(client, settings.gateway_url, Example("GET", "/"))
            found.faults["gateway"] = "" if trial.status else trial.fault
        await _ask_services(client, found, headers)
    found.faults["database"] = await _fault(_open(Database.open(stores.database, stores.pause_key)))
    if stores.redis:
        found.faults["redis"] = await _fault(_ping(stores.redis))
    if captures is not None:
        store = Store(captures.url)
        found.faults["captures"] = fault = await _fault(asyncio.to_thread(_write, store))
        for name in settings.flows if not fault else ():
            found.captured[name] = await asyncio.to_thread(_captured, settings, name, store)
    return found


async def _ask_services(
    client: httpx.AsyncClient, found: Survey, headers: Mapping[str, str]
) -> None:
    """Ask each service for each flow's example, or for anything where there is none."""
    settings = found.settings
    async with AsyncExitStack() as opened:
        for stack, at in settings.stacks.items():
            try:
                url = await opened.enter_async_context(started(at.app)) if at.app else at.url
            except CutoverError as error:
                found.services[stack] = str(error)
                continue
            extra = {**at.headers, **headers}
            for name, _ in found.declared:
                text = settings.flows[name].example
                example = Example.of(text) if text else Example("GET", "/")
                trial = await ask(client, url, example, extra)
                if text:
                    found.trials[name, stack] = trial
                if not trial.status:
                    found.services[stack] = f"{url} does not answer: {trial.fault}"


async def _status(client: httpx.AsyncClient, settings: Settings) -> Mapping[str, Any] | None:
    token = settings.server.flag_token
    headers = [("authorization", f"Bearer {token}")] if token else []
    asked = Example("GET", "/cutover/status", headers)
    return (await ask(client, settings.server_url, asked)).decoded(dict[str, Any])


async def _fault(trying: Any) -> str:
    try:
        async with asyncio.timeout(STORE_SECONDS):
            await trying
    except TimeoutError:
        return f"no answer within {STORE_SECONDS:.0f} s"
    except (CutoverError, SQLAlchemyError, RedisError, OSError, ValueError, ImportError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    return ""


async def _open(store: AbstractAsyncContextManager[object]) -> None:
    async with store:
        pass


async def _ping(url: str) -> None:
    async with Redis.from_url(url) as redis:
        await redis.ping()


def _write(store: Store) -> None:
    store.replace(store.add("doctor", datetime.now(UTC).date(), b""), ())


def _captured(settings: Settings, name: str, store: Store) -> Captured:
    found = Captured()
    flow = flow_of(name, settings)
    for record in CaptureReader(store, name, store.names(name)[-NEWEST_FILES:]):
        if record.role == "shadow":
            found.escaped.update(record.escaped)
        elif record.role == "serving":
            found.runs[record.stack] += 1
            found.recorded[record.stack] += bool(record.plays)
            if isinstance(flow, ServiceFlow):
                found.without_key.update(_lacking(flow, record))
    return found


def _lacking(flow: ServiceFlow, record: RunRecord) -> Iterator[str]:
    body = flow.stored(record.path, msgspec.json.decode(record.request), None).body
    yield from (key for key in flow.keys if not flow.key(body, key))
