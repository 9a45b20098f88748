"""A client of one host: connects, reuses idle connections for a while, sends requests."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from contract.errors import CutoverError
from effects.tape import Signal
from router.remote.http1.connection import Connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from yarl import URL

    from router.remote.http1.connection import Answer


Item = TypeVar("Item")


class Idle(Generic[Item]):
    """Idle connections, for at most so many seconds; the last one in is the first one out."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[Item, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def give(self, one: Item, now: float) -> None:
        """Add one."""
        self._since[one] = now

    def take(self, now: float) -> Item | None:
        """Return the one used last, unless it is too old: then all others are, too."""
        if not self._since:
            return None
        one, since = self._since.popitem()
        if now - since < self._seconds:
            return one
        self._since[one] = since
        return None

    def discard(self, one: Item) -> None:
        """Remove one."""
        self._since.pop(one, None)

    def stale(self, now: float) -> list[Item]:
        """Remove and return all that are too old."""
        old = [one for one, since in self._since.items() if now - since >= self._seconds]
        for one in old:
            del self._since[one]
        return old

    @property
    def due(self) -> float | None:
        """The moment at which the oldest will be too old; None where there is none."""
        return next((since + self._seconds for since in self._since.values()), None)


KEPT_ALIVE = 3.0
"""Seconds an idle connection is reused: below the five after which common servers close it. A
request that meets the close fails: it may have been handled, and is not sent twice."""


class ConnectTimedOut(CutoverError):
    """A stack was not connected to in time."""

    def __init__(self, place: str, seconds: float) -> None:
        super().__init__(f"no connection to {place!r} within {seconds:g} s")


class Unreachable(CutoverError):
    """No server accepts connections at an address."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"cannot connect to {place!r}: {why}")


class Client:
    """The connections to the host of a URL: one per open request, the last used first."""

    def __init__(self, url: URL, connect_seconds: float) -> None:
        self._url = url
        self._seconds = connect_seconds
        self._secured = ssl.create_default_context() if url.scheme == "https" else None
        self._idle: Idle[Connection] = Idle(KEPT_ALIVE)
        self._open: set[Connection] = set()
        self._lost = Signal()
        self._sweeping: asyncio.TimerHandle | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, url: URL, connect_seconds: float) -> AsyncIterator[Client]:
        """Open connections for as long as the block lasts."""
        client = cls(url, connect_seconds)
        try:
            yield client
        finally:
            await client.aclose()

    @property
    def connections(self) -> int:
        """How many are open, in use or not."""
        return len(self._open)

    async def ask(self, request: bytes) -> Answer:
        """Send a request; return when the head of its answer has arrived.

        Raises:
            ConnectTimedOut: there was no connection in time.
            Unreachable: the connection was refused, or the host is unknown.
            AnswerLost: the connection broke before the head was whole.
        """
        connection = self._reusable() or await self._connect()
        answer = connection.ask(request)
        await answer.headed()
        return answer

    async def aclose(self) -> None:
        """Abort all connections."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in self._open:
            connection.drop()
        while self._open:
            await self._lost.wait()

    def _reusable(self) -> Connection | None:
        now = asyncio.get_running_loop().time()
        while connection := self._idle.take(now):
            if not connection.closing:  # dropped, and its loss not reported yet
                return connection
        return None

    async def _connect(self) -> Connection:
        url = self._url
        try:
            async with asyncio.timeout(self._seconds):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self._free, self._forget),
                    url.raw_host or "",
                    url.port or 0,
                    ssl=self._secured,
                )
        except TimeoutError as error:
            raise ConnectTimedOut(url.authority, self._seconds) from error
        except OSError as error:
            raise Unreachable(url.authority, type(error).__name__) from error
        self._open.add(connection)
        return connection

    def _free(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        self._idle.give(connection, loop.time())
        if self._sweeping is None:
            self._sweeping = loop.call_later(KEPT_ALIVE, self._sweep)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        for connection in self._idle.stale(loop.time()):
            connection.drop()
        due = self._idle.due
        self._sweeping = None if due is None else loop.call_at(due, self._sweep)

    def _forget(self, connection: Connection) -> None:
        self._idle.discard(connection)
        self._open.discard(connection)
        self._lost.wake()
