"""Locks with an owner and a time limit: in this process, and in Redis where one is configured.

A lock is held first in the process and then in Redis. While Redis is away the process's part goes
on alone: a message may then be answered twice by two processes, which is better than not at all.

There is no task that renews a lock: after a kill it lapses by itself. An exchange that lasts longer
than its lock goes on without, and its message may be answered a second time meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from uuid import uuid4

from redis.asyncio import Redis
from redis.asyncio.lock import Lock
from redis.exceptions import LockNotOwnedError, RedisError

from cutover import effect
from cutover.tape import at_end
from effects.world import current

log = logging.getLogger(__name__)


class LocalLocks:
    """Locks of one process, timed by the loop's clock; `held` is the state they share."""

    def __init__(self, held: dict[str, tuple[str, float]]) -> None:
        self._held = held

    async def acquire(self, name: str, seconds: float, token: str) -> bool:
        """Take a lock that is free or has lapsed; False while it is held, by this token or not."""
        now = asyncio.get_running_loop().time()
        for lapsed in [one for one, (_, until) in self._held.items() if until <= now]:
            del self._held[lapsed]
        return self._held.setdefault(name, (token, now + seconds)) == (token, now + seconds)

    async def release(self, name: str, token: str) -> bool:
        """Free a lock that `token` holds; False where it holds none of that name."""
        owner, until = self._held.get(name, ("", 0.0))
        if owner != token:
            return False
        del self._held[name]
        return until > asyncio.get_running_loop().time()


class RedisLocks:
    """Locks of all processes that share a Redis: `SET NX PX`, and compare-and-delete."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def acquire(self, name: str, seconds: float, token: str) -> bool:
        """Take a lock that is free or has lapsed; False while it is held, by this token or not."""
        lock = Lock(self._redis, name, timeout=seconds, thread_local=False)
        return bool(await lock.acquire(blocking=False, token=token))

    async def release(self, name: str, token: str) -> bool:
        """Free a lock that `token` holds; False where it holds none of that name."""
        try:
            await Lock(self._redis, name, thread_local=False).do_release(token.encode())
        except LockNotOwnedError:
            return False
        return True


@effect("locks.acquire", writes=True, seconds=5.0)
async def acquire(name: str, seconds: float, token: str | None = None) -> str | None:
    """Take a lock for at most `seconds` and return its owner's token, None where it is held.

    Without a `token` one is drawn. The exchange releases the lock when it ends, unless `release`
    did.
    """
    world, owner = current(), token or uuid4().hex
    local = LocalLocks(world.held)
    if not await local.acquire(name, seconds, owner):
        return None
    if world.redis is not None:
        try:
            free = await RedisLocks(world.redis).acquire(name, seconds, owner)
        except RedisError as error:
            log.warning("lock held in this process alone name=%s error=%s", name, error)
        else:
            if not free:
                await local.release(name, owner)
                return None
    at_end(partial(_release, name, owner))
    return owner


@effect("locks.release", writes=True, seconds=5.0)
async def release(name: str, token: str) -> bool:
    """Free a lock that `token` holds; False where it has lapsed or another one holds it."""
    return await _release(name, token)


async def _release(name: str, token: str) -> bool:
    world = current()
    freed = await LocalLocks(world.held).release(name, token)
    if world.redis is not None:
        try:
            return await RedisLocks(world.redis).release(name, token)
        except RedisError as error:
            log.warning("lock left to lapse in redis name=%s error=%s", name, error)
    return freed
