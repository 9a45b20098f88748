"""Redis as a neighbour: a client that waits briefly, errors as faults."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from contract.errors import EffectFailed, Fault
from effects.extras import MissingExtra
from effects.stores.health import CHECK_SECONDS, HealthCheck
from effects.stores.shared_state import (
    KEEP_SECONDS,
    SPENT_SECONDS,
    BreakerNote,
    BreakerPhase,
    NoteUpdate,
    Pin,
    Spending,
    pin_key,
    total,
)
from effects.stores.values import LOCK_CODES, STORE_CODES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from effects.stores.values import Codes


try:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError
except ImportError as missing:  # pragma: no cover (the extra is installed where tests run)
    raise MissingExtra(adapter="Redis", extra="redis") from missing


LIMIT = 1.0
"""Seconds an adapter gives Redis unless told otherwise."""


class RedisServer:
    """A Redis at an address (`redis://host:6379/0`), asked through `client`.

    `limit` in seconds for connecting and for each reply.
    """

    def __init__(self, url: str, codes: Codes, *, limit: float) -> None:
        self.client: Redis = Redis.from_url(
            url,
            socket_connect_timeout=limit,
            socket_timeout=limit,
            retry=Retry(NoBackoff(), 1),  # a connection that broke while idle
        )
        self._codes = codes

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn the library's errors into faults, and those of a value that is none of the store's.

        Raises `EffectFailed`.
        """
        try:
            yield
        except (RedisError, OSError, TimeoutError) as failure:
            raise EffectFailed(Fault(self._codes.unavailable, retryable=True)) from failure
        except (msgspec.MsgspecError, UnicodeError) as failure:
            raise EffectFailed(Fault(self._codes.failed, data={"reason": "value"})) from failure

    async def aclose(self) -> None:
        """Disconnect; idempotent."""
        await self.client.aclose()


try:
    from redis.asyncio import Redis
    from redis.exceptions import AuthenticationError, RedisError, ResponseError
    from redis.exceptions import ConnectionError as NotConnected
    from redis.exceptions import TimeoutError as NoReply
except ImportError as missing:  # pragma: no cover (the extra is installed where tests run)
    raise MissingExtra(adapter="Redis", extra="redis") from missing


async def check_redis(url: str) -> HealthCheck | None:
    """Look; None where nobody was there to say anything. Raises `ValueError` for no address."""
    client: Redis = Redis.from_url(url, retry=None)
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await client.execute_command("PING")  # type: ignore[no-untyped-call] # the client's own
    except AuthenticationError:
        return HealthCheck(ok=False, detail="its password is refused, or it asks for one")
    except ResponseError:
        return HealthCheck(ok=False, detail="it has no such database, or does not let this user in")
    except (NotConnected, NoReply, TimeoutError, OSError):
        return None
    except RedisError as failure:
        return HealthCheck(ok=False, detail=f"it cannot be asked ({type(failure).__name__})")
    finally:
        await client.aclose()
    return HealthCheck(ok=True, detail="answers")


# Compared with the own token first: a retry after a lost reply must not find itself locked out.
_HOLD_LEASE = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end
if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return 0
"""
_RELEASE_LEASE = """
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
        self._hold = self._server.client.register_script(_HOLD_LEASE)
        self._let_go = self._server.client.register_script(_RELEASE_LEASE)
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


# `SET … NX GET` would do it but for the time to live, which a later turn has to renew.
_HOLD_PIN = """
local held = redis.call('get', KEYS[1])
if held then
    redis.call('pexpire', KEYS[1], ARGV[2])
    return held
end
redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
"""

_pin_encoder = msgspec.json.Encoder()
_pin_decoder = msgspec.json.Decoder(Pin)


class RedisPins:
    """Pins in Redis at an address (`redis://host:6379/0`).

    `limit` in seconds for connecting and for each reply. Redis out of reach is the fault
    `store_unavailable`, a value that is no pin `store_failed`.
    """

    def __init__(self, url: str, *, prefix: str = "cutover:pin:", limit: float = LIMIT) -> None:
        self._server = RedisServer(url, STORE_CODES, limit=limit)
        self._hold = self._server.client.register_script(_HOLD_PIN)
        self._prefix = prefix

    async def hold(self, flow: str, conversation: str, pin: Pin, seconds: float) -> Pin:
        """Give the pin of a conversation, `pin` where it has none; kept for so many seconds."""
        key = self._prefix + pin_key(flow, conversation)
        args: list[bytes | int] = [_pin_encoder.encode(pin), max(1, round(seconds * 1_000))]
        with self._server.translated():
            return _pin_decoder.decode(await self._hold(keys=[key], args=args))

    async def aclose(self) -> None:
        """Disconnect; idempotent."""
        await self._server.aclose()


# KEYS[1]: the notes. ARGV[1]: for how long one is kept; then six for each post, "*" expecting any.
_POST = """
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for at = 2, #ARGV, 6 do
    local key, expected, mark = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local held, known = redis.call('hget', KEYS[1], key), ''
    if held then
        local note = cjson.decode(held)
        if note[3] > now - ARGV[1] then known = note[1] end
    end
    if known ~= mark and (expected == '*' or expected == known) then
        local note = {mark, ARGV[at + 3], now + ARGV[at + 4], tonumber(ARGV[at + 5])}
        redis.call('hset', KEYS[1], key, cjson.encode(note))
        redis.call('pexpire', KEYS[1], ARGV[1] + ARGV[at + 4] + 86400000)
    end
end
return {now, redis.call('hgetall', KEYS[1])}
"""
_ANY = "*"
_KEEP_MS = round(KEEP_SECONDS * 1_000)

_Kept = tuple[str, BreakerPhase, float, int]
_note = msgspec.json.Decoder(_Kept)
_spent = msgspec.json.Decoder(Spending)
_spending_encoder = msgspec.json.Encoder()


class RedisSharedState:
    """A board in Redis at an address (`redis://host:6379/0`).

    `limit` in seconds for connecting and for each reply. Redis out of reach is the fault
    `store_unavailable`, a value that is none of the board's `store_failed`.
    """

    def __init__(self, url: str, *, prefix: str = "cutover:board:", limit: float = LIMIT) -> None:
        self._server = RedisServer(url, STORE_CODES, limit=limit)
        self._post = self._server.client.register_script(_POST)
        self._prefix = prefix

    async def post(self, posts: Sequence[NoteUpdate]) -> Mapping[str, BreakerNote]:
        """Put up those notes whose place is as expected; gives all that are up then."""
        args = [_KEEP_MS, *(word for one in posts for word in _words(one))]
        with self._server.translated():
            now, flat = await self._post(keys=[f"{self._prefix}notes"], args=args)
            pairs = zip(flat[::2], flat[1::2], strict=True)
            kept = {key.decode(): _note.decode(value) for key, value in pairs}
        return {
            key: BreakerNote(mark, phase, max(until - now, 0.0) / 1_000, well)
            for key, (mark, phase, until, well) in kept.items()
            if until > now - _KEEP_MS
        }

    async def spend(self, day: int, who: str, own: Spending) -> Spending:
        """Say what one has spent in a day, all told; gives what all have."""
        key = f"{self._prefix}spent:{day}"
        with self._server.translated():
            async with self._server.client.pipeline(transaction=True) as asked:
                asked.hset(key, who, _spending_encoder.encode(own))
                asked.expire(key, SPENT_SECONDS)
                asked.hvals(key)
                *_, values = await asked.execute()
            return total([_spent.decode(value) for value in values])

    async def aclose(self) -> None:
        """Disconnect; idempotent."""
        await self._server.aclose()


def _words(post: NoteUpdate) -> tuple[str | int, ...]:
    note, expected = post.note, _ANY if post.expected is None else post.expected
    return post.key, expected, note.mark, note.phase, int(note.left * 1_000), note.well
