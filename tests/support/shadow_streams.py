"""A stream between routers and workers of shadows, of a test's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from redis.asyncio import Redis

from effects.stores.shadow_broker import ShadowBroker
from effects.stores.shadow_stream import Delivery, RouterStream, WorkerStream

LONG, AT_ONCE = 600.0, 0.0
"""Seconds after which what a worker has read is another's."""


@dataclass
class Place:
    """A stream of the test's own, and a client that sees it as it is."""

    url: str
    prefix: str
    redis: Redis

    def router(self) -> RouterStream:
        """Return the end of a router."""
        return RouterStream(self.url, prefix=self.prefix)

    @asynccontextmanager
    async def worker(self, idle: float = LONG) -> AsyncIterator[Reading]:
        """Return a worker that reads."""
        async with aclosing(WorkerStream(self.url, idle, prefix=self.prefix)) as stream:
            broker = ShadowBroker(stream)
            async with aclosing(broker.listen()) as deliveries:
                yield Reading(stream, deliveries)
            await broker.shutdown()

    async def left(self) -> int:
        """Return how many exchanges stand on the stream."""
        return int(await self.redis.xlen(self.prefix + "exchanges"))


@dataclass
class Reading:
    """A worker's end, and what it reads."""

    stream: WorkerStream
    deliveries: AsyncGenerator[Any, None]

    async def read(self) -> Delivery:
        """Return the next delivery."""
        found = await anext(self.deliveries)
        assert isinstance(found, Delivery)
        return found


@asynccontextmanager
async def own_stream(url: str) -> AsyncIterator[Place]:
    """Make a stream, and remove all keys that it has had."""
    prefix = f"test:{uuid4().hex}:"
    async with Redis.from_url(url) as redis:
        yield Place(url, prefix, redis)
        keys = [key async for key in redis.scan_iter(match=f"{prefix}*", count=1_000)]
        if keys:
            await redis.delete(*keys)
