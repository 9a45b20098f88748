"""Request bodies: read within limits, each of them and all that are held together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.types import Receive, Scope

from effects.loop_time import limit
from router.config.schema import Settings
from router.problems import Problem

SMALL_BYTES: Final = 65_536
"""Bodies up to here need no reservation: clients that send large ones must not block others."""


class BodyMemory:
    """Reserves memory for the large bodies that are being read, or served.

    `count_shed` is called with the problem of a request that finds no memory or takes too long, and
    returns it.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        count_shed: Callable[[Problem], Problem] = lambda problem: problem,
    ) -> None:
        self.reserved = 0
        self.count_shed = count_shed
        self._settings = settings

    async def read(self, scope: Scope, receive: Receive, most: int) -> bytes:
        """Read a request's body, which stays reserved until `release` is called with it.

        Raises `Problem`: 413 beyond `most` bytes, 503 where there is no memory, 408 where it does
        not arrive in time, 400 where the connection ends first.
        """
        limits = self._settings().limits
        # There may be more leading zeros than Python reads digits at once.
        declared = dict(scope["headers"]).get(b"content-length", b"").lstrip(b"0")
        if declared.isdigit() and int(declared) > most:
            raise _too_large(most)
        deadline = limit(limits.body_seconds)
        try:
            async with deadline:
                return await self._read(receive, most, limits.body_bytes)
        except TimeoutError:
            if not deadline.expired():
                raise
            slow = Problem(408, "slow_body", "the body did not arrive in time")
            raise self.count_shed(slow) from None

    async def _read(self, receive: Receive, most: int, most_reserved: int) -> bytes:
        pieces: list[bytes] = []
        size = reserved = 0
        more = True
        try:
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise Problem(400, "incomplete_body", "the connection ended inside the body")
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > most:
                    raise _too_large(most)
                if size > SMALL_BYTES:
                    self._reserve(size - reserved, most_reserved)
                    reserved = size
                more = message.get("more_body", False)
            return b"".join(pieces)
        finally:
            if more:  # refused, or cancelled
                self.reserved -= reserved

    def release(self, body: bytes) -> None:
        """Release what `read` has reserved for a body; an empty one has nothing reserved."""
        if len(body) > SMALL_BYTES:
            self.reserved -= len(body)

    def _reserve(self, size: int, most: int) -> None:
        if self.reserved + size > most:
            why = "too many large requests are open"
            raise self.count_shed(Problem(503, "overloaded", why, retry_after=1))
        self.reserved += size


def _too_large(limit: int) -> Problem:
    return Problem(413, "body_too_large", f"at most {limit} bytes are taken")
