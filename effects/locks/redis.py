"""Leases in Redis: locks many processes and hosts share, ended by Redis itself."""

from __future__ import annotations

from effects.codes import LOCK_CODES
from effects.redis import LIMIT, RedisServer

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

    def __init__(self, url: str, *, prefix: str = "", limit: float = LIMIT) -> None:
        self._server = RedisServer(url, LOCK_CODES, limit=limit)
        self._hold = self._server.client.register_script(_HOLD)
        self._let_go = self._server.client.register_script(_LET_GO)
        self._prefix = prefix

    async def hold(self, key: str, token: str, ms: int) -> bool:
        """Take a key nobody holds, or keep an own one, for so many milliseconds from now."""
        with self._server.translated():
            return bool(await self._hold(keys=[self._prefix + key], args=[token, ms]))

    async def let_go(self, key: str, token: str) -> None:
        """Give a key back, if this token holds it."""
        with self._server.translated():
            await self._let_go(keys=[self._prefix + key], args=[token])

    async def aclose(self) -> None:
        """Disconnect; idempotent."""
        await self._server.aclose()
