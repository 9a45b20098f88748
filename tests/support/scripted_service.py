"""A service on loopback that streams what a test tells it to, byte by byte, on raw sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ssl import SSLContext

from loadtests.processes import own_port

EVENTS, LINES = b"text/event-stream", b"application/x-ndjson"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n" % EVENTS

HELLO = {"message_id": "m", "content": "Hello"}
FRAMES = [
    b'event: x\ndata: {"step" : "ACCEPT", "more": 1}\n\n',
    b'data: {"step":"START_REPLY"}\r\n\r\n',
    b": still here\n\n",
    b'data: {"step":"SEND","content":"\xff END"}\n\n',
    b'data: {"step":"SUCCESS","content":"a"}\n\n',
    b'data: {"step":"END"}\n\n',
]
WHOLE = b"".join(FRAMES)


@dataclass(frozen=True)
class Asked:
    """A request as it came over the wire."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> list[str]:
        """Return all values of a header."""
        return [value for key, value in self.headers if key == name]


@dataclass
class Stream:
    """One answer being given."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def head(self, *more: bytes, kind: bytes = EVENTS) -> None:
        """Begin a stream of a media type, with more lines in its head."""
        await self.raw(
            HEAD.replace(EVENTS, kind) + b"".join(line + b"\r\n" for line in more) + b"\r\n"
        )

    async def raw(self, data: bytes) -> None:
        """Write bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def send(self, *pieces: bytes) -> None:
        """Write pieces, each a chunk of its own."""
        for piece in pieces:
            await self.raw(b"%x\r\n%b\r\n" % (len(piece), piece))

    async def end(self) -> None:
        """End the stream as it should be."""
        await self.raw(b"0\r\n\r\n")

    async def hang(self) -> None:
        """Say nothing until the other side has gone."""
        while await self.reader.read(1):
            pass

    def reset(self) -> None:
        """Drop the connection in the middle."""
        self.writer.transport.abort()


Answer = Callable[[Asked, Stream], Awaitable[None]]


@dataclass
class Service:
    """What was asked, and how to answer."""

    answer: Answer
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    once: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, one after the other."""
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                asked = await _request(reader)
                self.asked.append(asked)
                self.once.set()
                await self.answer(asked, Stream(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.gone.set()
            self._tasks.discard(task)
            writer.close()

    def close(self) -> None:
        """Take no more connections."""
        if self.server is not None:
            self.server.close()

    async def stop(self) -> None:
        """End what still runs."""
        self.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def serving(answer: Answer, secured: SSLContext | None = None) -> AsyncIterator[Service]:
    """Start a service, over TLS where it is given what for."""
    service = Service(answer)
    with own_port() as port:
        service.server = await asyncio.start_server(service.serve, "127.0.0.1", port, ssl=secured)
        service.url = f"{'https' if secured else 'http'}://127.0.0.1:{port}"
        try:
            yield service
        finally:
            await service.stop()


def streams(*pieces: bytes, kind: bytes = EVENTS) -> Answer:
    """Answer with a whole stream, in these pieces."""

    async def answer(_: Asked, stream: Stream) -> None:
        await stream.head(kind=kind)
        await stream.send(*pieces)
        await stream.end()

    return answer


def says(status: int, body: bytes = b"", *headers: bytes) -> Answer:
    """Answer with a status and a body."""

    async def answer(_: Asked, stream: Stream) -> None:
        lines = [
            b"HTTP/1.1 %d Whatever" % status,
            b"content-length: %d" % len(body),
            *headers,
        ]
        await stream.raw(b"\r\n".join(lines) + b"\r\n\r\n" + body)

    return answer


async def _request(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *rest = head.removesuffix("\r\n\r\n").split("\r\n")
    headers = [(name.lower(), value) for name, _, value in (one.partition(": ") for one in rest)]
    length = next((int(value) for name, value in headers if name == "content-length"), 0)
    return Asked(line, headers, await reader.readexactly(length))
