"""Pins many processes and hosts share, in Redis, which ends them itself."""

from __future__ import annotations

import msgspec

from contract.errors import EffectFailed
from contract.faults import Fault
from effects.extras import MissingExtra
from effects.pins.store import Pin, pin_key

try:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError
except ImportError as missing:  # pragma: no cover (the extra is installed where tests run)
    raise MissingExtra(adapter="RedisPins", extra="redis") from missing

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

    def __init__(self, url: str, *, prefix: str = "cutover:pin:", limit: float = 1.0) -> None:
        self._client: Redis = Redis.from_url(
            url,
            socket_connect_timeout=limit,
            socket_timeout=limit,
            retry=Retry(NoBackoff(), 1),  # a connection that broke while idle
        )
        self._hold = self._client.register_script(_HOLD)
        self._prefix = prefix

    async def hold(self, flow: str, conversation: str, pin: Pin, seconds: float) -> Pin:
        """Give the pin of a conversation, `pin` where it has none; kept for so many seconds."""
        key = self._prefix + pin_key(flow, conversation)
        args: list[bytes | int] = [_encoder.encode(pin), max(1, round(seconds * 1_000))]
        try:
            return _decoder.decode(await self._hold(keys=[key], args=args))
        except (RedisError, OSError, TimeoutError) as failure:
            raise EffectFailed(Fault("store_unavailable", retryable=True)) from failure
        except msgspec.MsgspecError as failure:
            raise EffectFailed(Fault("store_failed", data={"reason": "value"})) from failure

    async def aclose(self) -> None:
        """Disconnect; idempotent."""
        await self._client.aclose()
