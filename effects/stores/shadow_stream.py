"""Exchanges that wait for the workers of shadows, on a stream of Redis: a router's end, a worker's.

Routers add to the stream; each worker has a few at a time, and what one left behind another takes
over. Redis out of reach is the fault `store_unavailable`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from effects.stores.redis import RedisStore

PREFIX: Final = "cutover:shadow:"
GROUP: Final = "workers"
READ_AT_ONCE: Final = 8
"""What a worker has read is with it: more would wait beside an idle one."""
BLOCK_MS: Final = 500
"""How long one call waits for something new; shorter than Redis may take to answer."""
_MARK_MS: Final = 86_400_000
"""How long it is remembered that an exchange is done; what is older on the stream goes sooner."""
_OLDEST_MS: Final = _MARK_MS // 2
_SEND_SECONDS: Final = 5.0
"""Seconds in which Redis must take an exchange, which may have megabytes."""
_TOLD_MS: Final = 3_600_000
_ASIDE_MS: Final = 7 * 86_400_000
"""How long what was set aside is stored: it is not redacted."""
_ERASED_AT_ONCE: Final = 100
_HELD_AT_MOST: Final = 10_000

# Whether a delivery is still this worker's and not done; then it is its own anew, and one more try.
# KEYS: stream, mark, tries. ARGV: group, worker, id, milliseconds to remember. Returns the number
# of the try, or 0.
_BEGIN = """
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1, ARGV[2])
if #pending == 0 then return 0 end
if redis.call('EXISTS', KEYS[2]) == 1 then
    redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
    redis.call('XDEL', KEYS[1], ARGV[3])
    return 0
end
redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[3], 'JUSTID')
local tries = redis.call('INCR', KEYS[3])
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return tries
"""

Entry = tuple[str, dict[bytes, bytes]]
"""The id of what stands on a stream, and its fields."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """An exchange as a worker got it: its place on the stream, and what the router sent."""

    id: str
    message: bytes


def stream_of(prefix: str) -> str:
    """Return the name of the stream."""
    return prefix + "exchanges"


def entries_of(found: Any) -> Iterator[Entry]:
    """Yield what was read of one stream; the library has two forms of it."""
    streams = found.items() if isinstance(found, dict) else found
    for _, entries in streams or ():
        for ident, fields in entries:
            yield ident.decode(), fields


def _lines(fields: dict[bytes, bytes]) -> list[bytes]:
    return fields[b"data"].split(b"\n")


class RedisShadowStream(RedisStore):
    """Either end of the stream, and what was set aside from it."""

    def __init__(self, url: str, *, prefix: str = PREFIX, limit: float | None = None) -> None:
        super().__init__(url, prefix=prefix, limit=limit)
        self._aside = prefix + "aside"

    async def erase_set_aside(self, wanted: Callable[[bytes], bool]) -> int:
        """Remove exchanges that were set aside and have a line that is `wanted`; returns how many.

        What is still with workers is not: it ends in the captures, which are asked again.
        """
        erased, after = 0, "-"
        with self._translated():
            while True:
                found: Any = await self._client.xrange(self._aside, after, count=_ERASED_AT_ONCE)
                if not found:
                    return erased
                gone = [one for one, fields in found if any(map(wanted, _lines(fields)))]
                erased += await self._client.xdel(self._aside, *gone) if gone else 0
                after = f"({found[-1][0].decode()}"

    def _mark(self, exchange: str) -> str:
        return f"{self._prefix}done:{exchange}"


class RouterStream(RedisShadowStream):
    """A router's end: exchanges go out, and what workers tell of them comes in."""

    def __init__(self, url: str, *, prefix: str = PREFIX) -> None:
        super().__init__(url, prefix=prefix, limit=_SEND_SECONDS)
        self.router = uuid4().hex
        self._told = f"{prefix}told:{self.router}"
        self._heard = "0"

    async def send(self, message: bytes) -> str:
        """Put an exchange on the stream; returns its place there.

        What a router that was killed has left there for half a day goes.
        """
        oldest = int(time.time() * 1_000) - _OLDEST_MS
        stream = stream_of(self._prefix)
        with self._translated():
            place: Any = await self._client.xadd(stream, {"data": message}, minid=oldest)
            return str(place.decode())

    async def take_back(self, places: Mapping[str, str]) -> frozenset[str]:
        """Take exchanges off the stream; returns those that no worker has claimed, nor will.

        `places` are where they stand, "" where that is not known.
        """
        token, stream = uuid4().bytes, stream_of(self._prefix)
        with self._translated():
            async with self._client.pipeline(transaction=False) as pipe:
                for exchange in places:
                    pipe.set(self._mark(exchange), token, nx=True, get=True, px=_MARK_MS)
                for place in filter(None, places.values()):
                    pipe.xdel(stream, place)
                # A Redis that is full refuses marks, and takes what makes room.
                found: list[Any] = await pipe.execute(raise_on_error=False)
            for one in found:
                if isinstance(one, Exception):
                    raise one
        held = zip(places, found, strict=False)
        return frozenset(exchange for exchange, by in held if by in {None, token})

    async def told(self) -> Sequence[bytes]:
        """Wait for a moment; return what workers have told this router since the last call."""
        with self._translated():
            found = await self._client.xread({self._told: self._heard}, block=BLOCK_MS)
            entries = list(entries_of(found))
            if entries:
                self._heard = entries[-1][0]
                await self._client.xtrim(self._told, minid=self._heard, approximate=False)
        return [fields[b"data"] for _, fields in entries]


class WorkerStream(RedisShadowStream):
    """The end of a worker, which reads by the broker of `shadow_broker`.

    What it has read is another worker's after `idle` seconds in which it was not begun again.
    """

    def __init__(self, url: str, idle: float, *, prefix: str = PREFIX) -> None:
        super().__init__(url, prefix=prefix)
        self.url = url
        self.stream = stream_of(prefix)
        self.worker = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
        self.idle_ms = int(idle * 1_000)
        self._begin = self._client.register_script(_BEGIN)

    async def begin(self, delivery: Delivery, exchange: str) -> int:
        """Return which try of an exchange this is, from 1; 0 where it is done, or another's."""
        prefix = self._prefix
        keys = [self.stream, self._mark(exchange), f"{prefix}tries:{exchange}"]
        with self._translated():
            return int(
                await self._begin(keys=keys, args=[GROUP, self.worker, delivery.id, _MARK_MS])
            )

    async def claim(self, exchange: str) -> bool:
        """Take an exchange, for good: True for the one who may write its runs down."""
        mark, token = self._mark(exchange), uuid4().bytes
        with self._translated():
            # With its value: a retry after a lost reply must not find itself too late.
            held = await self._client.set(mark, token, nx=True, get=True, px=_MARK_MS)
        return held in {None, token}

    async def done(self, delivery: Delivery, router: str = "", told: bytes = b"") -> None:
        """Take a delivery off the stream, and tell its router if there is one."""
        with self._translated():
            async with self._client.pipeline(transaction=False) as pipe:
                # A Redis that is full takes what makes room.
                pipe.xack(self.stream, GROUP, delivery.id)
                pipe.xdel(self.stream, delivery.id)
                if router:
                    pipe.xadd(f"{self._prefix}told:{router}", {"data": told})
                    pipe.pexpire(f"{self._prefix}told:{router}", _TOLD_MS)
                await pipe.execute()

    async def set_aside(self, delivery: Delivery) -> None:
        """Put a copy of an exchange where no worker reads it, for a week."""
        with self._translated():
            seconds, _ = await self._client.time()
            oldest = seconds * 1_000 - _ASIDE_MS
            await self._client.xadd(self._aside, {"data": delivery.message}, minid=oldest)
            await self._client.pexpire(self._aside, _ASIDE_MS)

    async def leave(self) -> None:
        """Let others have at once what was read and not done."""
        with self._translated():
            found = await self._client.xpending_range(
                self.stream, GROUP, "-", "+", _HELD_AT_MOST, consumername=self.worker
            )
            ids: list[Any] = [one["message_id"] for one in found]
            if ids:
                await self._client.xclaim(
                    self.stream, GROUP, self.worker, 0, ids, idle=self.idle_ms, justid=True
                )
            else:
                await self._client.xgroup_delconsumer(self.stream, GROUP, self.worker)
