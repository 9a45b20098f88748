"""HTTP answers of a bounded size: the SDK reads one that is JSON as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MOST_BYTES = 4_194_304

_EVENTS = "text/event-stream"


class AnswerTooLong(httpx2.StreamError):
    """An answer goes on beyond what is read of one; of this kind the call alone fails."""

    def __init__(self) -> None:
        super().__init__(f"longer than {MOST_BYTES} bytes")


class BoundedTransport(httpx2.AsyncHTTPTransport):
    """Breaks off answers that are too long; a stream of events may be of any length."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        response = await super().handle_async_request(request)
        stream = response.stream
        events = response.headers.get("content-type", "").startswith(_EVENTS)
        if isinstance(stream, httpx2.AsyncByteStream) and not events:
            response.stream = BoundedStream(stream)
        return response


class BoundedStream(httpx2.AsyncByteStream):
    """A body of which `MOST_BYTES` are read."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body's pieces; raises `AnswerTooLong`."""
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > MOST_BYTES:
                raise AnswerTooLong
            yield piece

    async def aclose(self) -> None:
        """Close the connection's side."""
        await self._stream.aclose()
