"""The world that effects act on: one open `World` a process; its clock and new ids, as effects.

Effects are module functions without a parameter for the world: what reads a tape must not differ
by the objects of a process. A `ContextVar` would not do, since pumps, threads and background tasks
begin in contexts of their own.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import uuid4
from zoneinfo import ZoneInfo

import httpx
import msgspec
from redis.asyncio import Redis

from cutover import effect
from cutover.errors import CutoverError
from effects.database import Database

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.store.base import BaseStore

    from effects.models import Models
    from effects.tools import Tools
    from effects.workers.registry import Workers

REDIS_SECONDS: Final = 1.0
"""How long a call of Redis may take, and connecting to it."""
SERVICE_SECONDS: Final = 5.0
"""How long a request to the Memory service may take."""


class EffectSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the world is.

    `redis` and `memory_service` are URLs, None where there is none: locks are then held in this
    process alone, and turns are stored in `database`. `zone` is a name of the IANA database.
    `pause_key` is a key as `Database.open` takes it.
    """

    database: str = "sqlite+aiosqlite:///cutover.db"
    redis: str | None = None
    zone: str = "UTC"
    memory_service: str | None = None
    memory_service_token: str = ""
    pause_key: str = ""


_LATER: Any = None


@dataclass(frozen=True, slots=True)
class World:
    """What effects act on.

    `clock` returns seconds since the Unix epoch; tests move it. `http` is the client of the Memory
    service, with its base URL. `held` are the locks of this process: owner token and the loop time
    at which each lapses, by name. `models`, `memory`, `tools`, `workers` and `threads` are put in
    with `dataclasses.replace` and `use`, where they are needed.
    """

    settings: EffectSettings
    database: Database
    zone: ZoneInfo
    clock: Callable[[], float] = time.time
    redis: Redis | None = None
    http: httpx.AsyncClient | None = None
    held: dict[str, tuple[str, float]] = field(default_factory=dict)
    models: Models = _LATER
    memory: BaseStore = _LATER
    tools: Tools = _LATER
    workers: Workers = _LATER
    threads: BaseCheckpointSaver[Any] = _LATER


class WorldClosed(CutoverError):
    """An effect was called while no world is open."""

    def __init__(self) -> None:
        super().__init__("no world is open: call effects within `async with open_world(settings)`")


_worlds: list[World] = []


def current() -> World:
    """Return the world that was opened last; raises `WorldClosed` where there is none."""
    if not _worlds:
        raise WorldClosed
    return _worlds[-1]


@contextmanager
def use(world: World) -> Iterator[World]:
    """Make `world` the current one until the end of the block, and then the former one again."""
    _worlds.append(world)
    try:
        yield world
    finally:
        # By identity, the newest first: two tasks may close their worlds in either order.
        last = max(index for index, one in enumerate(_worlds) if one is world)
        del _worlds[last]


@asynccontextmanager
async def open_world(
    settings: EffectSettings, clock: Callable[[], float] = time.time
) -> AsyncIterator[World]:
    """Open the database, and clients of Redis and the Memory service, and make them current.

    Redis and the service are not called before the first effect that needs them.
    """
    async with AsyncExitStack() as opened:
        database = await opened.enter_async_context(
            Database.open(settings.database, settings.pause_key)
        )
        redis = http = None
        if settings.redis is not None:
            redis = await opened.enter_async_context(
                Redis.from_url(
                    settings.redis,
                    decode_responses=True,
                    socket_timeout=REDIS_SECONDS,
                    socket_connect_timeout=REDIS_SECONDS,
                )
            )
        if settings.memory_service is not None:
            token = settings.memory_service_token
            http = await opened.enter_async_context(
                httpx.AsyncClient(
                    base_url=settings.memory_service,
                    headers={"authorization": f"Bearer {token}"} if token else None,
                    timeout=SERVICE_SECONDS,
                )
            )
        world = World(settings, database, ZoneInfo(settings.zone), clock, redis, http)
        yield opened.enter_context(use(world))


Kind = Literal["message", "session", "hitl", "approval", "memory"]
"""What an id is for: two stacks that draw ids in another order get the same for each purpose."""


@effect("clock.now")
async def read_clock() -> str:
    """Return the time in the configured zone: ISO 8601, milliseconds, offset."""
    return local_time(current().clock())


@effect("ids.new")
async def new_id(kind: Kind) -> str:
    """Return a new id: 32 hexadecimal digits."""
    del kind  # stands in the call's key alone
    return uuid4().hex


def local_time(seconds: float) -> str:
    """Return seconds since the epoch as `read_clock` would; for what is stored outside a run."""
    return datetime.fromtimestamp(seconds, current().zone).isoformat(timespec="milliseconds")
