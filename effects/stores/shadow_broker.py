"""Taskiq's broker for workers of shadows: how exchanges are read off a stream of Redis."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any, Final

from contract.errors import MissingExtra
from effects.stores.redis import LIMIT
from effects.stores.shadow_stream import (
    BLOCK_MS,
    GROUP,
    READ_AT_ONCE,
    Delivery,
    Entry,
    WorkerStream,
    entries_of,
)

try:
    from redis.asyncio import Redis
    from redis.exceptions import RedisError, ResponseError
    from taskiq import BrokerMessage, TaskiqFormatter, TaskiqMessage
    from taskiq_redis import RedisStreamBroker
except ImportError as missing:  # pragma: no cover (the extra is installed where tests run)
    raise MissingExtra(adapter="cutover shadow-worker", extra="workers") from missing

TASK: Final = "shadow"
_READ_SECONDS: Final = 30.0
"""In which exchanges must have come: some have megabytes."""
_REST_SECONDS: Final = 1.0
_GROUP_SECONDS: Final = 0.1
_GONE_MS: Final = 86_400_000
"""A worker that holds nothing, and has not been seen for so long, is gone."""

log = logging.getLogger(__name__)


class _AsRead(TaskiqFormatter):
    """Passes on what was read: that it can be understood is not the broker's affair."""

    def dumps(self, message: TaskiqMessage) -> BrokerMessage:
        """Refuse: routers write the stream themselves."""
        raise NotImplementedError

    def loads(self, message: Any) -> TaskiqMessage:
        """Return a call of the one task there is."""
        return TaskiqMessage(task_id="", task_name=TASK, labels={}, args=[message], kwargs={})


class ShadowBroker(RedisStreamBroker):
    """Taskiq's broker, but for how it reads; the task `TASK` gets a `Delivery`.

    The library's own takes over what others have left only after something new has come, and ends
    with its connection or with the stream. `WorkerStream.done` acknowledges, with what it tells.
    """

    def __init__(self, stream: WorkerStream) -> None:
        super().__init__(
            stream.url,
            queue_name=stream.stream,
            consumer_group_name=GROUP,
            consumer_name=stream.worker,
            consumer_id="0",
            idle_timeout=stream.idle_ms,
            xread_block=BLOCK_MS,
            xread_count=READ_AT_ONCE,
            socket_connect_timeout=LIMIT,
            socket_timeout=_READ_SECONDS,
        )
        self._count = READ_AT_ONCE
        self.formatter = _AsRead()
        self.is_worker_process = True
        self._tidied = self._away = False

    async def startup(self) -> None:
        """Do nothing: the first reading makes the group, as Redis may be away now."""

    async def listen(self) -> AsyncGenerator[Any, None]:
        """Yield what others have left for too long, and what is new."""
        async with Redis(connection_pool=self.connection_pool) as redis:
            while True:
                try:
                    found = await self._left_behind(redis) or await self._new(redis)
                    if not self._tidied:
                        await self._tidy(redis)
                except (RedisError, OSError, TimeoutError) as failure:
                    await self._recover(failure)
                    continue
                if self._away:
                    self._away = False
                    log.info("shadow worker: Redis is back")
                self._count = READ_AT_ONCE
                for ident, fields in found:
                    yield Delivery(ident, fields[b"data"])

    async def _left_behind(self, redis: Redis) -> list[Entry]:
        found: Any = await redis.xautoclaim(
            self.queue_name,
            self.consumer_group_name,
            self.consumer_name,
            self.idle_timeout,
            count=self._count,
        )
        return [(ident.decode(), fields) for ident, fields in found[1] if fields]

    async def _new(self, redis: Redis) -> list[Entry]:
        found = await redis.xreadgroup(
            self.consumer_group_name,
            self.consumer_name,
            {self.queue_name: ">"},
            count=self._count,
            block=self.block,
        )
        return list(entries_of(found))

    async def _tidy(self, redis: Redis) -> None:
        """Remove the names of workers that are gone."""
        for one in await redis.xinfo_consumers(self.queue_name, self.consumer_group_name):
            if not one["pending"] and one["idle"] > _GONE_MS:
                await redis.xgroup_delconsumer(
                    self.queue_name, self.consumer_group_name, one["name"]
                )
        self._tidied = True

    async def _recover(self, failure: Exception) -> None:
        """Make the group where there is none, else wait a moment."""
        if isinstance(failure, ResponseError) and str(failure).startswith("NOGROUP"):
            await self._declare_consumer_group()
            await asyncio.sleep(_GROUP_SECONDS)  # a Redis that is full makes none
            return
        self._count = 1  # what comes together may be more than the connection carries in time
        if not self._away:
            self._away = True
            log.error("shadow worker: Redis does not answer: %s", type(failure).__name__)
        await asyncio.sleep(_REST_SECONDS)
