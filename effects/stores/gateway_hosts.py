"""Which host has an exchange: names with which its workers' ids begin, and where its gateway is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from effects.stores.redis import RedisStore

_KEY: Final = "cutover:gateways"

# KEYS: a sorted set of "name address" by the moment at which each ends. ARGV: seconds, then what is
# announced. Returns all that have not ended.
_ANNOUNCE: Final = """
local now = tonumber(redis.call('TIME')[1])
for at = 2, #ARGV do redis.call('ZADD', KEYS[1], now + tonumber(ARGV[1]), ARGV[at]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. now)
return redis.call('ZRANGE', KEYS[1], 0, -1)
"""


class RedisGatewayHosts(RedisStore):
    """The gateways of all routers that share a Redis; one that announces nothing any more ends."""

    def __init__(self, url: str, *, prefix: str = "") -> None:
        super().__init__(url, prefix=prefix)
        self._key = prefix + _KEY
        self._announce = self._client.register_script(_ANNOUNCE)

    async def announce(self, name: str, address: str, seconds: int) -> Mapping[str, str]:
        """Say where a name is for so many seconds; return the addresses of all names."""
        with self._translated():
            found = await self._announce(keys=[self._key], args=[seconds, f"{name} {address}"])
            return dict(_pair(one) for one in found)

    async def withdraw(self, name: str, address: str) -> None:
        """Say that a name is nowhere any more."""
        with self._translated():
            await self._client.zrem(self._key, f"{name} {address}")


def _pair(announced: bytes) -> tuple[str, str]:
    name, _, address = announced.decode().partition(" ")
    return name, address
