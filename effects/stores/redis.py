"""Stores in Redis that many processes and hosts share: leases, pins, shared state.

Each is at an address (`redis://host:6379/0`). Redis out of reach is the fault `lock_unavailable` or
`store_unavailable`; a value that is none of the store's is `store_failed`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import uuid4

import msgspec

from contract.errors import CutoverError, EffectFailed, Fault, MissingExtra
from effects.stores.shared_state import (
    NOTE_SECONDS,
    SPENDING_SECONDS,
    BreakerNote,
    BreakerPhase,
    NoteUpdate,
    Pin,
    PinCount,
    PinnedStack,
    Spending,
    pin_key,
    pins_by_flow,
    total,
)
from effects.stores.tables import CHECK_SECONDS, LOCK_CODES, STORE_CODES, FaultCodes, HealthCheck

try:
    from redis import exceptions
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import AuthenticationError, RedisError, ResponseError
except ImportError as missing:  # pragma: no cover (the extra is installed where tests run)
    raise MissingExtra(adapter="Redis", extra="redis") from missing

LIMIT = 1.0
"""Seconds an adapter allows Redis for connecting and for each reply."""


class NoRedisAddress(CutoverError):
    """An address cannot be read; it is not shown, since it may hold a password."""

    def __init__(self) -> None:
        super().__init__("the address of a Redis is none: redis://host:6379/0 is due")


class RedisStore:
    """A client that waits briefly; the keys of one store begin with its prefix."""

    codes: FaultCodes = STORE_CODES

    def __init__(self, url: str, *, prefix: str, limit: float | None = None) -> None:
        """Make the client; raises `NoRedisAddress`. `limit` is in seconds, instead of `LIMIT`."""
        try:
            self._client: Redis = Redis.from_url(
                url,
                socket_connect_timeout=LIMIT,
                socket_timeout=LIMIT if limit is None else limit,
                retry=Retry(NoBackoff(), 1),  # a connection that broke while idle
            )
        except ValueError as error:
            raise NoRedisAddress from error
        self._prefix = prefix

    async def aclose(self) -> None:
        """Disconnect; idempotent."""
        await self._client.aclose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn the library's errors, and those of unreadable values, into faults."""
        try:
            yield
        except (RedisError, OSError, TimeoutError) as failure:
            raise EffectFailed(Fault(self.codes.unavailable, retryable=True)) from failure
        except (msgspec.MsgspecError, UnicodeError) as failure:
            raise EffectFailed(Fault(self.codes.failed, data={"reason": "value"})) from failure


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


class RedisLeases(RedisStore):
    """Leases that Redis itself ends."""

    codes = LOCK_CODES

    def __init__(self, url: str, *, prefix: str = "") -> None:
        super().__init__(url, prefix=prefix)
        self._hold = self._client.register_script(_HOLD_LEASE)
        self._release = self._client.register_script(_RELEASE_LEASE)

    async def hold(self, key: str, token: str, ms: int) -> bool:
        """Take a free key, or extend an own one, for so many milliseconds from now."""
        with self._translated():
            return bool(await self._hold(keys=[self._prefix + key], args=[token, ms]))

    async def release(self, key: str, token: str) -> None:
        """Free a key, if this token holds it."""
        with self._translated():
            await self._release(keys=[self._prefix + key], args=[token])


# `SET … NX GET` would do but for the time to live, which a later turn has to renew.
_HOLD_PIN = """
local held = redis.call('get', KEYS[1])
if held then
    redis.call('pexpire', KEYS[1], ARGV[2])
    return held
end
redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
"""

# KEYS: pins. ARGV[1]: the stack whose pins go, "" for either. Returns the stack of each that went.
_RELEASE_PINS = """
local released = {}
for _, key in ipairs(KEYS) do
    local held = redis.call('get', key)
    local pin = held and cjson.decode(held)
    if pin and (ARGV[1] == '' or ARGV[1] == pin.stack) then
        redis.call('del', key)
        table.insert(released, pin.stack)
    end
end
return released
"""
_SCANNED = 1_000
"""Keys that one command looks at: those of other stores in the same database included."""
_RELEASE_SECONDS = 86_400
"""How long the mark of a release is stored: no router remembers a pin for so long."""

_encoder = msgspec.json.Encoder()
_pin = msgspec.json.Decoder(Pin)


class RedisPins(RedisStore):
    """Pins that Redis itself ends."""

    def __init__(self, url: str, *, prefix: str = "cutover:pin:") -> None:
        super().__init__(url, prefix=prefix)
        self._hold = self._client.register_script(_HOLD_PIN)
        self._release = self._client.register_script(_RELEASE_PINS)

    async def hold(self, flow: str, conversation: str, pin: Pin, seconds: float) -> Pin:
        """Return the pin of a conversation, `pin` where it has none; it holds for `seconds`."""
        key = self._prefix + pin_key(flow, conversation)
        args: list[bytes | int] = [_encoder.encode(pin), max(1, round(seconds * 1_000))]
        with self._translated():
            return _pin.decode(await self._hold(keys=[key], args=args))

    async def move(self, flow: str, conversation: str, pin: Pin, seconds: float) -> None:
        """Replace the pin of a conversation."""
        key = self._prefix + pin_key(flow, conversation)
        with self._translated():
            await self._client.set(key, _encoder.encode(pin), px=max(1, round(seconds * 1_000)))

    async def count(self) -> Mapping[str, PinCount]:
        """Count the pins that hold now, by flow."""
        found = Counter[tuple[str, str]]()
        with self._translated():
            async for keys in self._scan("*"):
                values = await self._client.mget(keys)
                flows = (key.removeprefix(self._prefix).rpartition(":")[0] for key in keys)
                pairs = zip(flows, values, strict=True)
                found.update((flow, _pin.decode(one).stack) for flow, one in pairs if one)
        return pins_by_flow(found)

    async def release(self, flow: str, stack: PinnedStack | None = None) -> PinCount:
        """Remove a flow's pins, all or those to one stack; returns how many held."""
        found = Counter[tuple[str, str]]()
        with self._translated():
            async for keys in self._scan(flow):
                removed = await self._release(keys=keys, args=[stack or ""])
                found.update((flow, one.decode()) for one in removed)
            await self._client.hset(self._releases, flow, uuid4().hex)
            await self._client.expire(self._releases, _RELEASE_SECONDS)
        return pins_by_flow(found).get(flow, PinCount())

    async def released(self) -> Mapping[str, str]:
        """Return the mark of each flow's last release."""
        with self._translated():
            marks = await self._client.hgetall(self._releases)
            return {_text(flow): _text(mark) for flow, mark in marks.items()}

    @property
    def _releases(self) -> str:
        return f"{self._prefix}released"

    async def _scan(self, flow: str) -> AsyncIterator[list[str]]:
        """Yield the keys of a flow's pins some at a time, of a key perhaps twice."""
        cursor, pattern = 0, f"{self._prefix}{flow}:{'?' * 32}"
        while True:
            cursor, keys = await self._client.scan(cursor, match=pattern, count=_SCANNED)
            if keys:
                yield [_text(key) for key in keys]
            if not cursor:
                return


def _text(value: bytes | str) -> str:
    """Return what the client sends back as text; its types leave open which it is."""
    return value if isinstance(value, str) else value.decode()


# KEYS[1]: the notes. ARGV[1]: how long one is stored; then six for each update, "*" expecting any.
_UPDATE_NOTES = """
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
_NOTE_MS = round(NOTE_SECONDS * 1_000)

_note = msgspec.json.Decoder(tuple[str, BreakerPhase, float, int])
_spending = msgspec.json.Decoder(Spending)


class RedisSharedState(RedisStore):
    """Shared state whose notes hold by the clock of Redis."""

    def __init__(self, url: str, *, prefix: str = "cutover:state:") -> None:
        super().__init__(url, prefix=prefix)
        self._update_notes = self._client.register_script(_UPDATE_NOTES)

    async def update_notes(self, updates: Sequence[NoteUpdate]) -> Mapping[str, BreakerNote]:
        """Replace the notes that are as expected; returns all notes there are then, by key."""
        args = [_NOTE_MS, *(word for update in updates for word in _words(update))]
        with self._translated():
            now, flat = await self._update_notes(keys=[f"{self._prefix}notes"], args=args)
            pairs = zip(flat[::2], flat[1::2], strict=True)
            stored = {key.decode(): _note.decode(value) for key, value in pairs}
        return {
            key: BreakerNote(mark, phase, max(until - now, 0.0) / 1_000, well)
            for key, (mark, phase, until, well) in stored.items()
            if until > now - _NOTE_MS
        }

    async def report_spending(self, day: int, router: str, own: Spending) -> Spending:
        """Record all that one router has spent in a day; returns what all of them have."""
        key = f"{self._prefix}spent:{day}"
        with self._translated():
            async with self._client.pipeline(transaction=True) as commands:
                commands.hset(key, router, _encoder.encode(own))
                commands.expire(key, SPENDING_SECONDS)
                commands.hvals(key)
                *_, values = await commands.execute()
            return total([_spending.decode(value) for value in values])


def _words(update: NoteUpdate) -> tuple[str | int, ...]:
    note, expected = update.note, _ANY if update.expected is None else update.expected
    return update.key, expected, note.mark, note.phase, int(note.left * 1_000), note.well


async def check_redis(url: str) -> HealthCheck | None:
    """Check whether a Redis accepts us; None where it does not answer.

    Raises `ValueError` for an address that is none.
    """
    client: Redis = Redis.from_url(url, retry=None)
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await client.execute_command("PING")  # type: ignore[no-untyped-call] # the client's own
    except AuthenticationError:
        return HealthCheck(ok=False, detail="its password is refused, or it asks for one")
    except ResponseError:
        return HealthCheck(ok=False, detail="it has no such database, or does not let this user in")
    except (exceptions.ConnectionError, exceptions.TimeoutError, TimeoutError, OSError):
        return None
    except RedisError as failure:
        return HealthCheck(ok=False, detail=f"it cannot be checked ({type(failure).__name__})")
    finally:
        await client.aclose()
    return HealthCheck(ok=True, detail="answers")
