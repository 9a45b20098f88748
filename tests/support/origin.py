"""An HTTP/1.1 server on loopback that answers with the very bytes a test wants, cut as it wants."""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Self

Piece = bytes | float | Literal["reset", "hang"]
"""Bytes of the body, a pause in seconds, a broken connection, or silence for good."""


@dataclass(frozen=True)
class Reply:
    """One answer; without `pieces` the body is empty."""

    pieces: Sequence[Piece] = ()
    media: str = "application/json"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    before: Literal["", "reset"] = ""
    """What happens before any header."""

    @property
    def head(self) -> bytes:
        """Status line and headers; a body in chunks shows where it was broken off."""
        lines = [f"HTTP/1.1 {self.status} X", f"content-type: {self.media}", "connection: close"]
        lines.append("transfer-encoding: chunked")
        lines += [f"{name}: {value}" for name, value in self.headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


@dataclass
class Asked:
    """A request as it came in; `left_at` is when its client left before the end of the answer."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    left_at: float | None = None


@dataclass
class Origin:
    """Answers requests in order; `async with Origin(Reply(...)) as origin`, then `origin.url`."""

    replies: deque[Reply] = field(default_factory=deque)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""
    keeps_alive: bool = False
    """Whether it promises to keep connections open, which it then closes all the same."""
    _answering: set[asyncio.Task[None]] = field(default_factory=set)

    def script(self, *replies: Reply) -> Self:
        """Queue answers."""
        self.replies.extend(replies)
        return self

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in tuple(self._answering):
            task.cancel()
        if self._answering:
            await asyncio.wait(self._answering)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                asked = await self._read(reader)
                await self._answer(asked, self.replies.popleft(), reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            self._answering.discard(task)

    async def _read(self, reader: asyncio.StreamReader) -> Asked:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = {
            name.lower(): value
            for name, _, value in (line.partition(": ") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = Asked(method, target, headers, body)
        self.asked.append(asked)
        return asked

    async def _answer(
        self, asked: Asked, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if reply.before == "reset":
            writer.transport.abort()
            return
        kept = reply.head.replace(b"connection: close\r\n", b"") if self.keeps_alive else reply.head
        writer.write(kept)
        leaving = asyncio.ensure_future(reader.read())
        try:
            for piece in reply.pieces:
                match piece:
                    case bytes():
                        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                        await writer.drain()
                        await asyncio.sleep(0)
                    case "reset":
                        writer.transport.abort()
                        return
                    case _:
                        seconds = None if isinstance(piece, str) else piece
                        await asyncio.wait({leaving}, timeout=seconds)
                if leaving.done():
                    asked.left_at = asyncio.get_running_loop().time()
                    return
            if asked.method != "HEAD" and reply.status not in {204, 304}:
                writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            leaving.cancel()
            with suppress(ConnectionError, asyncio.CancelledError):
                await leaving
