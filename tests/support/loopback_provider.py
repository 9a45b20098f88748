"""A provider on loopback that does byte for byte what a test tells it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from contract.errors import EffectFailed, Fault
from contract.model import Chunk, ModelCall, UserMessage
from effects.model import (
    Limits,
    ModelEntry,
    ModelRegistry,
    Provider,
    RescuePolicy,
    RescuingModel,
    Secret,
)

KEY = "sk-loopback-0123456789"
CALL = ModelCall(model_id="m", messages=(UserMessage("Hello"),))


@dataclass(frozen=True)
class Received:
    """A request as it came."""

    path: str
    headers: Mapping[str, str]
    body: Any


class Wire:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def head(self, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Send the head of a chunked response."""
        fields = {"content-type": "text/event-stream", **(headers or {})}
        lines = [f"HTTP/1.1 {status} said", "transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        await self._write("\r\n".join([*lines, "", ""]).encode())

    async def send(self, data: bytes) -> None:
        """Send a piece of the body; an empty one would end it."""
        if data:
            await self._write(b"%x\r\n%s\r\n" % (len(data), data))

    async def raw(self, data: bytes) -> None:
        """Send bytes that need not be HTTP."""
        await self._write(data)

    async def end(self) -> None:
        """End the body; the connection stays."""
        await self._write(b"0\r\n\r\n")

    async def events(self, *events: object) -> None:
        """Send each as the JSON of one event."""
        for event in events:
            await self.send(sse(event))

    async def gone(self) -> None:
        """Wait until the client has gone."""
        with suppress(ConnectionError):
            while await self._reader.read(1):
                pass

    def reset(self) -> None:
        """Break the connection off."""
        self._writer.transport.abort()

    async def receive(self) -> Received:
        """Read one request."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])
        }
        body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return Received(head[0].split()[1], headers, json.loads(body))

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


Answer = Callable[[Wire], Awaitable[None]]


@dataclass
class Loopback:
    """A running provider: where it is and what it was asked."""

    base_url: str = ""
    requests: list[Received] = field(default_factory=list)
    connections: int = 0

    def entry(self, **limits: float) -> ModelEntry:
        """Return an entry `m` served here, called `loop-1` here."""
        provider = Provider("loopback", self.base_url, Secret(KEY), Limits(**limits))
        return ModelEntry("m", provider, "loop-1")


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Loopback]:
    """Answer every request on a free port of loopback."""
    loopback = Loopback()
    tasks: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        loopback.connections += 1
        try:
            while True:
                loopback.requests.append(await wire.receive())
                await answer(wire)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            wire.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(converse(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    loopback.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield loopback
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def registry_of(*entries: ModelEntry) -> AsyncIterator[ModelRegistry]:
    """Open a registry and close it."""
    registry = ModelRegistry(entries)
    try:
        yield registry
    finally:
        await registry.aclose()


def sse(event: object) -> bytes:
    """Encode an event; bytes stand for themselves."""
    data = event if isinstance(event, bytes) else json.dumps(event).encode()
    return b"data: " + data + b"\n\n"


def in_turn(*answers: Answer) -> Answer:
    """Answer the first request with the first answer, and so on, then with the last."""
    left = list(answers)

    async def answer(wire: Wire) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(wire)

    return answer


def refusing(status: int, body: bytes = b"{}", **headers: str) -> Answer:
    """Make a provider that refuses."""

    async def answer(wire: Wire) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await wire.head(status, {"content-type": "application/json", **named})
        await wire.send(body)
        await wire.end()

    return answer


def delta(**fields: object) -> dict[str, object]:
    """Make a chunk of one choice that adds these fields."""
    return {"model": "loop-1", "choices": [{"index": 0, "delta": fields}]}


def finish(reason: str = "stop") -> dict[str, object]:
    """Make the chunk that ends an answer."""
    choice = {"index": 0, "delta": {}, "finish_reason": reason}
    return {"model": "loop-1", "choices": [choice]}


def usage(prompt: int, completion: int) -> dict[str, object]:
    """Make the chunk of token counts after the last choice."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return {
        "model": "loop-1",
        "choices": [],
        "usage": {**counts, "total_tokens": prompt + completion},
    }


async def whole(chunks: AsyncIterator[Chunk]) -> list[Chunk]:
    """Read a stream to its end."""
    return [chunk async for chunk in chunks]


async def until_fault(stream: AsyncIterator[Chunk]) -> tuple[list[Chunk], Fault | None]:
    """Read a stream; return all that came of it, and the fault that ended it."""
    chunks: list[Chunk] = []
    try:
        async for chunk in stream:
            chunks.append(chunk)  # noqa: PERF401 (kept when the stream fails)
    except EffectFailed as failed:
        return chunks, failed.fault
    return chunks, None


def once(registry: ModelRegistry) -> RescuingModel:
    """Make a model port that calls once and never again."""
    return RescuingModel(registry, RescuePolicy(attempts=1))


async def ask(entry: ModelEntry) -> list[Chunk]:
    """Ask through the port and read to the end."""
    async with registry_of(entry) as registry:
        return await whole(once(registry).stream("reply", CALL))
