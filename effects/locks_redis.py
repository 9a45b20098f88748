"""Locks many processes and hosts share, in Redis.

A lock is a key that holds its owner's token and expires by itself. Letting go and renewing compare
the token inside Redis, so nobody can touch a lock that has meanwhile passed to somebody else.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from typing import TYPE_CHECKING
from uuid import uuid4

from contract.errors import EffectFailed
from contract.faults import Fault
from effects.extras import MissingExtra

try:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError
except ImportError as missing:  # pragma: no cover (the extra is installed where tests run)
    raise MissingExtra(adapter="RedisLocks", extra="redis") from missing

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Any

log = logging.getLogger(__name__)

# Compared with the own token first: a retry after a lost reply must not find itself locked out.
_TAKE = """
if redis.call('get', KEYS[1]) == ARGV[1] then return 1 end
if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return 0
"""
_RENEW = """
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('pexpire', KEYS[1], ARGV[2])
"""
_LET_GO = """
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('del', KEYS[1])
"""


class RedisServer:
    """The connection all owners share; `limit` in seconds for connecting and for each reply."""

    def __init__(self, url: str, limit: float = 1.0) -> None:
        self.client: Redis = Redis.from_url(
            url,
            socket_connect_timeout=limit,
            socket_timeout=limit,
            retry=Retry(NoBackoff(), 1),  # a connection that broke while idle
        )
        self.take = self.client.register_script(_TAKE)
        self.renew = self.client.register_script(_RENEW)
        self.let_go = self.client.register_script(_LET_GO)
        self.renewals: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Renew nothing any more and disconnect; idempotent."""
        renewals = tuple(self.renewals)
        for renewal in renewals:
            renewal.cancel()
        if renewals:
            await asyncio.wait(renewals)
        await self.client.aclose()


class _Hold:
    """A lock this owner took: its token, its ttl in milliseconds, and the task that renews it."""

    __slots__ = ("ms", "renewal", "token")

    def __init__(self, token: str, ms: int) -> None:
        self.token = token
        self.ms = ms
        self.renewal: asyncio.Task[None] | None = None


class RedisLocks:
    """Locks in Redis; each object is one owner, `for_exchange()` makes another.

    `server` is an address (`redis://host:6379/0`) or a connection already made. Redis out of
    reach is the fault `lock_unavailable`. A lock taken by a call that was cancelled before its
    answer came is not renewed and ends after its ttl.
    """

    def __init__(self, server: str | RedisServer, *, prefix: str = "") -> None:
        self._opens = isinstance(server, str)
        self._server = RedisServer(server) if isinstance(server, str) else server
        self._prefix = prefix
        self._holds: dict[str, _Hold] = {}

    def for_exchange(self) -> RedisLocks:
        """Make another owner of the same locks, on the same connection."""
        return RedisLocks(self._server, prefix=self._prefix)

    async def acquire(self, site: str, key: str, ttl: float) -> bool:
        """Take a lock nobody holds, without waiting; False when anybody does, this owner too."""
        if key in self._holds:
            return False
        hold = _Hold(uuid4().hex, max(1, round(ttl * 1000)))
        if not await self._ask(
            self._server.take(keys=[self._key(key)], args=[hold.token, hold.ms])
        ):
            return False
        self._holds[key] = hold
        hold.renewal = asyncio.create_task(
            self._keep(key, hold), name=f"renewal of {key}", context=Context()
        )
        self._server.renewals.add(hold.renewal)
        hold.renewal.add_done_callback(self._server.renewals.discard)
        return True

    async def release(self, site: str, key: str) -> None:
        """Let go of a lock of this owner; anything else is left alone."""
        hold = self._holds.pop(key, None)
        if hold is None:
            return
        await _end(hold)
        await self._ask(self._server.let_go(keys=[self._key(key)], args=[hold.token]))

    async def renew(self, key: str) -> bool:
        """Give a held lock its whole ttl again; False when it has been lost."""
        hold = self._holds.get(key)
        if hold is None:
            return False
        answer = self._server.renew(keys=[self._key(key)], args=[hold.token, hold.ms])
        return bool(await self._ask(answer))

    async def abandon(self) -> None:
        """Stop renewing without letting go, as a crash would: the locks end after their ttl."""
        for hold in self._holds.values():
            await _end(hold)
        self._holds.clear()

    async def aclose(self) -> None:
        """Let go of what this owner holds; whoever made the connection disconnects too."""
        for key in list(self._holds):
            try:
                await self.release("close", key)
            except EffectFailed:
                log.warning("lock %r could not be released and expires by itself", key)
        if self._opens:
            await self._server.aclose()

    def _key(self, key: str) -> str:
        return f"{self._prefix}{key}"

    async def _ask(self, answer: Awaitable[Any]) -> int:
        try:
            return int(await answer)
        except (RedisError, OSError, TimeoutError, UnicodeError) as failure:
            raise EffectFailed(Fault("lock_unavailable", retryable=True)) from failure

    async def _keep(self, key: str, hold: _Hold) -> None:
        while True:
            await asyncio.sleep(hold.ms / 3000)
            try:
                kept = await self.renew(key)
            except EffectFailed:
                log.warning("lock %r could not be renewed; trying again", key)
            else:
                if not kept:
                    log.warning("lock %r was lost before it was released", key)
                    return


async def _end(hold: _Hold) -> None:
    """Cancel a renewal and wait for its end, so that it cannot act after the release."""
    if hold.renewal is not None:
        hold.renewal.cancel()
        await asyncio.wait([hold.renewal])
