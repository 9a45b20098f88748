"""A store that routers share, seen by two of them: in memory, in a file, in Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from tests.support.clocks import Clock

KINDS = ["memory", "sqlite", pytest.param("redis", marks=pytest.mark.sockets)]
"""What a fixture that opens a shared store is parametrised by."""


Store = TypeVar("Store")


@dataclass(frozen=True)
class Makers(Generic[Store]):
    """How a store of each kind is made; the one in Redis takes an address and a prefix."""

    memory: Callable[[Clock], Store]
    sqlite: Callable[[Path, Clock], AbstractAsyncContextManager[Store]]
    redis: Callable[..., Any]


@dataclass(frozen=True)
class Shared(Generic[Store]):
    """A store, and a second router's view of the same one.

    `clock` where it goes by one that can be moved; `keys` where it is in Redis.
    """

    store: Store
    other: Store
    clock: Clock | None = None
    keys: Keys | None = None

    async def lapse(self, seconds: float) -> None:
        """Let time pass for what is stored."""
        if self.clock is not None:
            self.clock.now += seconds
        if self.keys is not None:
            await self.keys.lapse(seconds)


@dataclass(frozen=True)
class Keys:
    """Keys in Redis that begin with a prefix no other test uses."""

    client: Redis
    prefix: str

    async def lapse(self, seconds: float) -> None:
        """Take so much of the time they have left; all have an end."""
        async for key in self.client.scan_iter(f"{self.prefix}*"):
            left = await self.client.pttl(key)
            assert left != -1, "it ends by itself"
            await self.client.pexpire(key, max(left - round(seconds * 1_000), 0))


@asynccontextmanager
async def keys_in_redis(url: str) -> AsyncIterator[Keys]:
    """Give room in Redis, which is swept at the end."""
    async with Redis.from_url(url) as client:
        keys = Keys(client, f"test:{uuid4().hex}:")
        yield keys
        await keys.lapse(1e9)


@asynccontextmanager
async def opened(
    request: pytest.FixtureRequest, path: Path, makers: Makers[Store]
) -> AsyncIterator[Shared[Store]]:
    """Open an empty store of the kind a fixture is asked for, twice."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        match request.param:
            case "memory":
                memory = makers.memory(clock)
                yield Shared(memory, memory, clock)
            case "sqlite":
                one = await stack.enter_async_context(makers.sqlite(path, clock))
                two = await stack.enter_async_context(makers.sqlite(path, clock))
                yield Shared(one, two, clock)
            case _:
                url: str = request.getfixturevalue("redis_url")
                keys = await stack.enter_async_context(keys_in_redis(url))
                here, there = (makers.redis(url, prefix=keys.prefix) for _ in range(2))
                stack.push_async_callback(here.aclose)
                stack.push_async_callback(there.aclose)
                yield Shared(here, there, keys=keys)
