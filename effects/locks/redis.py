"""Leases in Redis: locks many processes and hosts share, ended by Redis itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.errors import EffectFailed
from contract.faults import Fault
from effects.extras import MissingExtra

try:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError
except ImportError as missing:  # pragma: no cover (the extra is installed where tests run)
    raise MissingExtra(adapter="RedisLeases", extra="redis") from missing

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Any

# Compared with the own token first: a retry after a lost reply must not find itself locked out.
_HOLD = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end
if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return 0
"""
_LET_GO = """
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('del', KEYS[1])
"""


class RedisLeases:
    """Leases in Redis at an address (`redis://host:6379/0`).

    `limit` in seconds for connecting and for each reply. Redis out of reach is the fault
    `lock_unavailable`.
    """

    def __init__(self, url: str, *, prefix: str = "", limit: float = 1.0) -> None:
        self._client: Redis = Redis.from_url(
            url,
            socket_connect_timeout=limit,
            socket_timeout=limit,
            retry=Retry(NoBackoff(), 1),  # a connection that broke while idle
        )
        self._hold = self._client.register_script(_HOLD)
        self._let_go = self._client.register_script(_LET_GO)
        self._prefix = prefix

    async def hold(self, key: str, token: str, ms: int) -> bool:
        """Take a key nobody holds, or keep an own one, for so many milliseconds from now."""
        return bool(await _asked(self._hold(keys=[self._prefix + key], args=[token, ms])))

    async def let_go(self, key: str, token: str) -> None:
        """Give a key back, if this token holds it."""
        await _asked(self._let_go(keys=[self._prefix + key], args=[token]))

    async def aclose(self) -> None:
        """Disconnect; idempotent."""
        await self._client.aclose()


async def _asked(answer: Awaitable[Any]) -> int:
    try:
        return int(await answer)
    except (RedisError, OSError, TimeoutError, UnicodeError) as failure:
        raise EffectFailed(Fault("lock_unavailable", retryable=True)) from failure
