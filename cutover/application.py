"""The application: a router that follows its configuration, and what is wrong with it."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from contract.errors import CutoverError
from cutover.flows import DEFAULT_CONFIG, SPECS
from cutover.wiring.addresses import ALONE, Crew
from cutover.wiring.composition import House, model_faults, opened
from cutover.wiring.gateway import open_gateway
from cutover.wiring.history import keep_history
from cutover.wiring.models import model_entries, rescue_policy
from cutover.wiring.operations import add_operations, admin_tokens
from effects.memory.search import LongTermMemory
from router.config import parse_settings
from router.gateway import add_gateway
from router.http.app import create_app
from router.telemetry.health import Watchdog
from router.telemetry.metrics.books import Sources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from fastapi import FastAPI

    from router.config import Settings, SettingsWatcher
    from router.stack import Stack, StackName

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Application:
    """What answers HTTP, and the house it stands on."""

    app: FastAPI
    house: House


@asynccontextmanager
async def application(
    watched: SettingsWatcher | None,
    environ: Mapping[str, str],
    stacks: Mapping[StackName, Stack] | None = None,
    host: str | None = None,
    crew: Crew = ALONE,
) -> AsyncIterator[Application]:
    """Open the house for the watched configuration (None: the defaults) and build its HTTP side.

    `host` is where it listens, if not where the configuration says; `crew` are the routers
    of this host that are one to their clients.
    """
    first = in_force(watched)()
    tokens = admin_tokens(first, environ, host or first.server.host)
    async with AsyncExitStack() as stack:
        opening = opened(in_force(watched), environ, stacks, crew)
        house = await stack.enter_async_context(opening)
        limit = first.limits.loop_seconds
        watchdog = Watchdog(limit or math.inf)
        if limit:
            stack.enter_context(watchdog.watching())
        keeper = None
        if watched is not None:
            watched.on_change(ModelsFollow(house, environ))
            keeper = await keep_history(watched, environ, house.faults, stack)
            if keeper is not None and house.router.parts.flags is not None:
                keeper.follow(house.router.parts.flags)
        faults = _faults(house, watched, watchdog)
        page = None
        if house.meters is not None:
            edits = partial(_refused, watched)
            memory = house.memory if isinstance(house.memory, LongTermMemory) else None
            sources = Sources(house.router, house.captures, faults, edits, house.model, memory)
            page = await stack.enter_async_context(house.meters.running(sources))
        app = create_app(house.router, faults, page)
        if watched is not None and tokens is not None:
            add_operations(app, house, watched, tokens, keeper)
        gateway = open_gateway(house, environ, host or first.server.host, crew.neighbours)
        if gateway is not None:
            add_gateway(app, gateway)
        yield Application(app, house)


def _refused(watched: SettingsWatcher | None) -> int:
    return watched.refused if watched is not None else 0


def in_force(watched: SettingsWatcher | None) -> Callable[[], Settings]:
    """Give the function that tells the settings in force now."""
    if watched is not None:
        return lambda: watched.current
    defaults = parse_settings("", str(DEFAULT_CONFIG), SPECS)
    return lambda: defaults


def _faults(
    house: House, watched: SettingsWatcher | None, watchdog: Watchdog
) -> Callable[[], Mapping[str, str]]:
    def faults() -> Mapping[str, str]:
        parts = house.router.parts
        telling: dict[str, object] = {
            "configuration": watched,
            "pins": parts.pins.neighbour,
            "flags": parts.flags,
            "board": house.news,
            "locks": house.locks,
            "event_loop": watchdog,
            **house.kept,
        }
        faulty = {part: getattr(one, "fault", None) for part, one in telling.items()}
        found = house.faults | {part: fault for part, fault in faulty.items() if fault}
        if dropped := house.captures.counts.dropped:
            told = (f"{count} {why}" for why, count in dropped.items())
            found["captures"] = f"exchanges dropped since the start: {', '.join(told)}"
        return found

    return faults


class ModelsFollow:
    """Puts changed models in force when the configuration changes."""

    def __init__(self, house: House, environ: Mapping[str, str]) -> None:
        self._house = house
        self._environ = environ
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, settings: Settings) -> None:
        """Take new settings; what is wrong with their models is told by `/readyz`."""
        house = self._house
        house.model.policy = house.shadow_model.model.policy = rescue_policy(settings.rescue)
        house.faults.pop("models", None)
        try:
            entries = model_entries(settings, self._environ)
        except CutoverError as error:
            log.error("models stay as they are: %s", error)  # noqa: TRY400 - no traceback wanted
            house.faults["models"] = str(error)
            return
        house.faults.update(model_faults(entries, settings))
        for registry in (house.models, house.shadow_model.registry):
            task = asyncio.get_running_loop().create_task(registry.replace(entries))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
