"""A transport whose end is told: otherwise nobody would notice it before the next call."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from anyio import EndOfStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType

    from mcp.client import Transport
    from mcp.shared.message import SessionMessage

    Streams = tuple["WatchedStream", Any]


class WatchedStream:
    """What a server says, until its end; `ended` is called then."""

    def __init__(self, stream: Any, ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended

    @property
    def last_context(self) -> Any:
        """The context of whoever sent the last message."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Give the next message."""
        try:
            message: SessionMessage | Exception = await self._stream.receive()
        except EndOfStream:
            self._ended()
            raise
        return message

    def __aiter__(self) -> WatchedStream:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stream.__aexit__(kind, error, trace)


@asynccontextmanager
async def watched(transport: Transport, ended: Callable[[], None]) -> AsyncIterator[Streams]:
    """Open a transport whose end is told."""
    async with transport as (read, write):
        yield WatchedStream(read, ended), write
