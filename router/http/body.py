"""Bodies of requests: read within limits, each of them and all that are held together."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from router.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import Receive, Scope

    from router.config import LimitSettings

SMALL: Final = 65_536
"""Bytes of a body that always find room: whoever sends large ones is nobody else's trouble."""


class Bodies:
    """Counts the bytes of the large bodies that are being read, or asked with.

    `shed` is told of who finds no room, and gives back the problem it is told.
    """

    def __init__(
        self,
        limits: Callable[[], LimitSettings],
        shed: Callable[[Problem], Problem] = lambda one: one,
    ) -> None:
        self.held = 0
        self.shed = shed
        self._limits = limits

    @contextmanager
    def room(self) -> Iterator[Room]:
        """Give room for one body for as long as the block lasts."""
        room = Room(self, self._limits())
        try:
            yield room
        finally:
            self.held -= room.size

    async def read(self, scope: Scope, receive: Receive, most: int) -> bytes:
        """Read a body that is let go of at once; raises what `Room.read` does."""
        with self.room() as room:
            return await room.read(scope, receive, most)


class Room:
    """Room for one body; `size` is what it takes of the room there is for all."""

    __slots__ = ("_bodies", "_limits", "size")

    def __init__(self, bodies: Bodies, limits: LimitSettings) -> None:
        self.size = 0
        self._bodies = bodies
        self._limits = limits

    async def read(self, scope: Scope, receive: Receive, most: int) -> bytes:
        """Read a request's body.

        Raises `Problem`: 413 beyond `most` bytes, 503 where there is no room, 408 where it does not
        come in time.
        """
        declared = next((v for k, v in scope["headers"] if k == b"content-length"), b"")
        # Of zeros there may be more than Python reads digits at once.
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
            raise Problem(408, "slow_body", "the body did not come in time") from None

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
            if size > SMALL:
                self._take(size)
            pieces.append(piece)
            if not message.get("more_body"):
                return b"".join(pieces)

    def _take(self, size: int) -> None:
        bodies = self._bodies
        if bodies.held + size - self.size > self._limits.body_bytes:
            why = "too many large requests are open"
            raise bodies.shed(Problem(503, "overloaded", why, retry_after=1))
        bodies.held += size - self.size
        self.size = size


def _too_large(limit: int) -> Problem:
    return Problem(413, "body_too_large", f"at most {limit} bytes are taken")
