"""Locks with an owner and a time limit: in this process, and in Redis where one is configured.

A lock is held first in the process and then in Redis. While Redis is away the process's part goes
on alone: a message may then be answered twice by two processes, which is better than not at all.

There is no task that renews a lock: after a kill it lapses by itself. An exchange that lasts longer
than its lock goes on without, and its message may be answered a second time meanwhile.
"""

import asyncio
import logging
from functools import partial
from uuid import uuid4

from redis.asyncio.lock import Lock
from redis.exceptions import LockNotOwnedError, RedisError

from cutover import effect
from cutover.tape import at_end
from effects.world import World, current

log = logging.getLogger(__name__)


@effect("locks.acquire", writes=True, seconds=5.0)
async def acquire(name: str, seconds: float) -> str | None:
    """Take a lock for at most `seconds` and return its owner's token, None where it is held.

    The exchange releases the lock when it ends, unless `release` did.
    """
    world, token = current(), uuid4().hex
    if not _acquire_here(world, name, seconds, token):
        return None
    if world.redis is not None:
        lock = Lock(world.redis, name, timeout=seconds, thread_local=False)
        try:
            free = await lock.acquire(blocking=False, token=token)
        except RedisError as error:
            log.warning("lock held in this process alone name=%s error=%s", name, error)
        else:
            if not free:
                _release_here(world, name, token)
                return None
    at_end(partial(_release, name, token))
    return token


@effect("locks.release", writes=True, seconds=5.0)
async def release(name: str, token: str) -> bool:
    """Free a lock that `token` holds; False where it has lapsed or another one holds it."""
    return await _release(name, token)


async def _release(name: str, token: str) -> bool:
    world = current()
    released = _release_here(world, name, token)
    if world.redis is not None:
        try:
            await Lock(world.redis, name, thread_local=False).do_release(token.encode())
        except LockNotOwnedError:
            return False
        except RedisError as error:
            log.warning("lock left to lapse in redis name=%s error=%s", name, error)
        else:
            return True
    return released


def _acquire_here(world: World, name: str, seconds: float, token: str) -> bool:
    """Take a lock of this process that is free or has lapsed."""
    now = asyncio.get_running_loop().time()
    for lapsed in [one for one, (_, until) in world.held.items() if until <= now]:
        del world.held[lapsed]
    return world.held.setdefault(name, (token, now + seconds))[0] == token


def _release_here(world: World, name: str, token: str) -> bool:
    """Free a lock of this process; False where `token` does not hold it, or no longer."""
    owner, until = world.held.get(name, ("", 0.0))
    if owner != token:
        return False
    del world.held[name]
    return until > asyncio.get_running_loop().time()
