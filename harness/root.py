"""The composition root: opens what is configured; without a built-in flow, imports no stack."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from functools import partial
from importlib.metadata import version
from typing import Any

import httpx
from fastapi import FastAPI
from sqlalchemy.exc import SQLAlchemyError

from compare.differences import Pair, differences
from cutover import Event, Request, Stack
from cutover.errors import CutoverError
from cutover.flow import Flow
from cutover.records import RecordDamaged, RunRecord, TapeRecord
from effects import conversations, rollout
from effects.pauses import Pauses
from effects.world import EffectSettings, World, open_world, use
from harness.config import ConfigRefused, Settings
from harness.live import LiveSettings
from harness.services import Services, candidates, flow_of
from router.app import Perform, ServedFlow, create_app
from router.breaker import BreakerSettings
from router.captures import Captures, Redactor, Store
from router.captures.lines import played_line, served_lines
from router.driver import Candidate
from router.exchange import Served
from router.pauses import PausedExchanges
from router.shadow import Played, Shadows
from router.telemetry.status import Operating

log = logging.getLogger(__name__)

READY_SECONDS = 2.0


def redactor(settings: Settings) -> Redactor | None:
    """Return what redacts captures as configured; raises `ConfigRefused`."""
    table = settings.captures
    if table is None:
        return None
    try:
        key, paths, patterns = table.key.encode(), table.redact_paths, table.redact_patterns
        return Redactor(key, paths=paths, patterns=patterns)
    except CutoverError as error:
        raise ConfigRefused(None, [f"captures: {error}"]) from error


def captures_of(settings: Settings) -> Captures | None:
    """Return the captures, None without any.

    Raises `ConfigRefused` where they cannot be stored, or redacted, as configured.
    """
    table = settings.captures
    if table is None:
        return None
    try:
        store = Store(table.url)
    except (ValueError, ImportError) as error:
        raise ConfigRefused(None, [f"captures: {error}"]) from error
    return Captures(store, redactor(settings), keep_days=table.keep_days)


def capturing(settings: Settings) -> AbstractAsyncContextManager[Captures | None]:
    """Have the captures written, if there are any, and what is left of them in the end."""
    return captures_of(settings) or nullcontext()


Observer = Callable[[Served], None]
"""Told of each exchange that has ended."""


@asynccontextmanager
async def tracing(settings: Settings) -> AsyncIterator[Sequence[Observer]]:
    """Open what sends traces, where that is configured, and in the end send what is left."""
    if not (url := settings.telemetry.otlp):
        yield ()
        return
    try:
        from router.telemetry.traces import Traces
    except ImportError as error:
        problem = f"telemetry.otlp: install the packages of cutover[otlp] ({error})"
        raise ConfigRefused(None, [problem]) from error
    traces = Traces(url, version("cutover"))
    try:
        yield (traces.observe,)
    finally:
        await traces.aclose()


def stores(settings: Settings) -> AbstractAsyncContextManager[World]:
    """Open the stores of the world, and make it the current one: what every router needs of it."""
    where = EffectSettings(
        database=settings.stores.database,
        redis=settings.stores.redis or None,
        zone=settings.timezone,
        memory_service=settings.stores.memory_service or None,
        memory_service_token=settings.stores.memory_service_token,
        pause_key=settings.stores.pause_key,
    )
    return open_world(where)


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[World]:
    """Open the world of the flows: all of it where one of them is built in, or else its stores."""
    async with stores(settings) as world:
        if not settings.built_in:
            yield world
            return
        from harness.builtin import completed

        async with completed(world, settings) as whole:
            yield whole


def stacks(flow: str) -> Mapping[str, Stack]:
    """Return the stacks of a built-in flow; without `legacy/`, this is all that changes."""
    import graph_impl
    import legacy

    return {"legacy": legacy.STACKS[flow], "graph": graph_impl.STACKS[flow]}


class CrashedOnPurpose(CutoverError):
    """The crash that was asked for."""


def crashing(stack: Stack, after: int) -> Stack:
    """Return a stack that raises behind its event number `after`."""

    async def crash(request: Request[Any, Any]) -> AsyncIterator[Event]:
        count = 0
        async with aclosing(stack(request)) as events:  # type: ignore[type-var]
            async for event in events:
                yield event
                count += 1
                if count == after:
                    raise CrashedOnPurpose

    return crash


def built_in(flow: str) -> dict[str, Candidate]:
    """Return what may serve a built-in flow."""
    return {one: Candidate(one, stack) for one, stack in stacks(flow).items()}


def equal(flow: Flow, tape: TapeRecord, served: RunRecord, played: RunRecord) -> bool:
    """Return whether two runs are equal, as reports say it; raises `RecordDamaged`."""
    comparison = differences(Pair(served, played, played.tape or tape), flow)
    if comparison.damage:
        raise RecordDamaged(comparison.damage)
    return comparison.equal


def equal_shadow(served: Served, played: Played) -> bool:
    """Return whether a shadow is equal to what was served, by the lines that captures have."""
    lines = served_lines(served, 0)
    tape = lines[0].tape or TapeRecord()
    return equal(served.flow, tape, lines[-1], played_line(served, played, 0))


async def _ready(world: World) -> str:
    """Return why requests cannot be served: they write to a database, and read conversations."""
    why = "the database takes no write"
    try:
        async with asyncio.timeout(READY_SECONDS):
            await world.database.probe()
            why = "no conversation can be read"
            with use(world):
                await conversations.messages("readyz", "readyz")
    except (TimeoutError, SQLAlchemyError, httpx.HTTPError, ValueError) as error:
        log.warning("not ready: %s error=%s", why, type(error).__name__)
        return why
    return ""


def application(
    live: LiveSettings,
    world: World,
    services: Services | None = None,
    shadows: Shadows | None = None,
    captures: Captures | None = None,
    observers: Sequence[Observer] = (),
    *,
    crash_after: int = 0,
) -> FastAPI:
    """Return the router's application over an open world; graph may crash on purpose."""
    settings, table = live.settings, live.settings.shadow

    def flow(name: str) -> ServedFlow:
        operations: Mapping[str, Perform] = {}
        if settings.flows[name].paths and services:
            found = dict(candidates(settings, settings.flows[name], services))
        else:
            from harness.builtin import OPERATIONS

            found, operations = built_in(name), OPERATIONS
            if crash_after:
                found["graph"] = Candidate("graph", crashing(found["graph"].stack, crash_after))
        return ServedFlow(flow_of(name, settings), found, lambda: live.flows[name], operations)

    flows = [flow(name) for name in settings.flows]
    pauses = PausedExchanges(Pauses(world.database, world.clock))
    return create_app(
        flows,
        pauses,
        rollout.put_feedback,
        rollout.pin,
        Operating(
            partial(_ready, world),
            lambda: live.refused,
            live.edit,
            observers,
            token=settings.server.flag_token,
            metrics=settings.telemetry.metrics,
            version=version("cutover"),
            uncorrelated=services.runs.uncorrelated if services else Counter(),
        ),
        streams=settings.limits.streams,
        origins=settings.server.origins,
        breaker=BreakerSettings(**settings.breaker.model_dump()),
        shadows=shadows or Shadows(equal_shadow, table.requests_a_day, table.queue_mib << 20),
        captures=captures,
    )
