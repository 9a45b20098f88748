"""Redis as a neighbour: a client that waits briefly, errors as faults."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from contract.errors import EffectFailed, Fault
from effects.extras import MissingExtra

try:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError
except ImportError as missing:  # pragma: no cover (the extra is installed where tests run)
    raise MissingExtra(adapter="Redis", extra="redis") from missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from effects.codes import Codes

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
