"""Request bodies: read within limits, each of them and all that are held together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from starlette.types import Receive, Scope

from router.config import LimitSettings
from router.problems import Problem

SMALL_BYTES: Final = 65_536
"""Bodies up to here need no reservation: clients that send large ones must not block others."""


class BodyMemory:
    """Reserves memory for the large bodies that are being read, or served.

    `count_shed` is called with the problem of a request that finds no memory, and returns it.
    """

    def __init__(
        self,
        limits: Callable[[], LimitSettings],
        count_shed: Callable[[Problem], Problem] = lambda problem: problem,
    ) -> None:
        self.reserved = 0
        self.count_shed = count_shed
        self._limits = limits

    @contextmanager
    def reservation(self) -> Iterator[Reservation]:
        """Reserve what one body needs for as long as the block lasts."""
        reservation = Reservation(self, self._limits())
        try:
            yield reservation
        finally:
            self.reserved -= reservation.size

    async def read(self, scope: Scope, receive: Receive, most: int) -> bytes:
        """Read a body that is released at once; raises what `Reservation.read` does."""
        with self.reservation() as reservation:
            return await reservation.read(scope, receive, most)


class Reservation:
    """The memory reserved for one body; `size` is in bytes."""

    __slots__ = ("_limits", "_memory", "size")

    def __init__(self, memory: BodyMemory, limits: LimitSettings) -> None:
        self.size = 0
        self._memory = memory
        self._limits = limits

    async def read(self, scope: Scope, receive: Receive, most: int) -> bytes:
        """Read a request's body.

        Raises `Problem`: 413 beyond `most` bytes, 503 where there is no memory, 408 where it does
        not arrive in time, 400 where the connection ends first.
        """
        declared = next((v for k, v in scope["headers"] if k == b"content-length"), b"")
        # There may be more leading zeros than Python reads digits at once.
        digits = declared.lstrip(b"0")
        if digits.isdigit() and int(digits) > most:
            raise _too_large(most)
        limit = asyncio.timeout(self._limits.body_seconds)
        try:
            async with limit:
                return await self._read(receive, most)
        except TimeoutError:
            if not limit.expired():
                raise
            raise Problem(408, "slow_body", "the body did not arrive in time") from None

    async def _read(self, receive: Receive, most: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise Problem(400, "incomplete_body", "the connection ended inside the body")
            piece = message.get("body", b"")
            size += len(piece)
            if size > most:
                raise _too_large(most)
            if size > SMALL_BYTES:
                self._reserve(size)
            pieces.append(piece)
            if not message.get("more_body"):
                return b"".join(pieces)

    def _reserve(self, size: int) -> None:
        memory = self._memory
        if memory.reserved + size - self.size > self._limits.body_bytes:
            why = "too many large requests are open"
            raise memory.count_shed(Problem(503, "overloaded", why, retry_after=1))
        memory.reserved += size - self.size
        self.size = size


def _too_large(limit: int) -> Problem:
    return Problem(413, "body_too_large", f"at most {limit} bytes are taken")
