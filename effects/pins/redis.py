"""Pins many processes and hosts share, in Redis, which ends them itself."""

from __future__ import annotations

import msgspec

from effects.codes import STORE_CODES
from effects.pins.store import Pin, pin_key
from effects.redis import LIMIT, RedisServer

# `SET … NX GET` would do it but for the time to live, which a later turn has to renew.
_HOLD = """
local held = redis.call('get', KEYS[1])
if held then
    redis.call('pexpire', KEYS[1], ARGV[2])
    return held
end
redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
"""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Pin)


class RedisPins:
    """Pins in Redis at an address (`redis://host:6379/0`).

    `limit` in seconds for connecting and for each reply. Redis out of reach is the fault
    `store_unavailable`, a value that is no pin `store_failed`.
    """

    def __init__(self, url: str, *, prefix: str = "cutover:pin:", limit: float = LIMIT) -> None:
        self._server = RedisServer(url, STORE_CODES, limit=limit)
        self._hold = self._server.client.register_script(_HOLD)
        self._prefix = prefix

    async def hold(self, flow: str, conversation: str, pin: Pin, seconds: float) -> Pin:
        """Give the pin of a conversation, `pin` where it has none; kept for so many seconds."""
        key = self._prefix + pin_key(flow, conversation)
        args: list[bytes | int] = [_encoder.encode(pin), max(1, round(seconds * 1_000))]
        with self._server.translated():
            return _decoder.decode(await self._hold(keys=[key], args=args))

    async def aclose(self) -> None:
        """Disconnect; idempotent."""
        await self._server.aclose()
