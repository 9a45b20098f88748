"""Three services that were not made for cutover, each with a wire of its own, on loopback.

Plain text in chunks, lines of JSON in Ollama's shape, and the AI SDK's UI message stream, which
comes from Node.js. What they do for the gateway is what any service would: another address of the
model, and two headers passed on.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import aiohttp
import msgspec

from contract.wire.sse import SseDecoder
from tests.support.scripted_service import LINES, Asked, Stream, serving

Wire = Literal["text", "ndjson", "ai-sdk"]
NODE = shutil.which("node")
_PASSED_ON = ("x-cutover-exchange", "x-cutover-role")
_SCRIPT = Path(__file__).with_name("ai_sdk_service.mjs")


class Behaviour(msgspec.Struct, omit_defaults=True):
    """What a service does.

    `model` is where its model is, "" for none: then it says a fixed text. `every` so many pieces
    of the model make one of its own; after `breaks` of these it drops the connection, and with 0
    it answers 500. `says` comes before what the model says.
    """

    model: str = ""
    every: int = 1
    breaks: int = -1
    says: str = ""


@dataclass
class Foreign:
    """A service that runs, and what to ask of it."""

    url: str
    wire: Wire
    process: asyncio.subprocess.Process | None = None
    behaviour: Behaviour = field(default_factory=Behaviour)

    async def set_up(self, behaviour: Behaviour) -> None:
        """Change what it does."""
        self.behaviour = behaviour
        if self.process is not None:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            line = json.dumps(msgspec.structs.asdict(behaviour))
            self.process.stdin.write(line.encode() + b"\n")
            assert await self.process.stdout.readline() == b"set up\n"


@asynccontextmanager
async def running(wire: Wire) -> AsyncIterator[Foreign]:
    """Start a service."""
    if wire == "ai-sdk":
        async with _node() as service:
            yield service
        return
    service = Foreign("", wire)
    async with serving(_Scripted(service)) as served:
        service.url = served.url
        yield service


@asynccontextmanager
async def _node() -> AsyncIterator[Foreign]:
    assert NODE is not None
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(NODE, _SCRIPT, stdin=pipe, stdout=pipe)
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        yield Foreign(f"http://127.0.0.1:{port}", "ai-sdk", process)
    finally:
        process.terminate()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio leaves its pipes open


@dataclass
class _Scripted:
    """The services in Python; each writes with one send a piece, as a generator would."""

    service: Foreign

    async def __call__(self, asked: Asked, stream: Stream) -> None:
        """Answer one request."""
        does = self.service.behaviour
        if does.breaks == 0:
            await stream.raw(b"HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n")
            return
        plain = self.service.wire == "text"
        await stream.head(kind=b"text/plain; charset=utf-8" if plain else LINES)
        held, sent = does.says, 0
        async for count, piece in self._pieces(asked):
            held += piece
            if count % does.every:
                continue
            if sent == does.breaks:
                stream.reset()
                return
            await stream.send(self._piece(held))
            held, sent = "", sent + 1
        if held:
            await stream.send(self._piece(held))
        if not plain:
            await stream.send(self._line("", done=True, done_reason="stop", eval_count=7))
        await stream.end()

    async def _pieces(self, asked: Asked) -> AsyncIterator[tuple[int, str]]:
        does = self.service.behaviour
        if not does.model:
            for number, letter in enumerate("abcdefgh", 1):
                yield number, letter
            return
        headers = {name: value for name in _PASSED_ON for value in asked.header(name)}
        messages = [
            {"role": one["role"], "content": one["content"]}
            for one in json.loads(asked.body)["messages"]
        ]
        body = {"model": "gpt-4.1", "messages": messages, "stream": True}
        url, events, count = f"{does.model}/chat/completions", SseDecoder(), 0
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json=body, headers=headers) as response,
        ):
            response.raise_for_status()
            async for received in response.content.iter_any():
                for event in events.feed(received):
                    if event.data == b"[DONE]":
                        continue
                    choices = json.loads(event.data)["choices"]
                    if choices and (content := choices[0]["delta"].get("content")):
                        count += 1
                        yield count, content

    def _piece(self, text: str) -> bytes:
        return text.encode() if self.service.wire == "text" else self._line(text)

    def _line(self, text: str, **more: object) -> bytes:
        head = {"model": "llama3.2", "created_at": "2026-11-23T10:17:00.385406455Z"}
        message = {"role": "assistant", "content": text}
        return json.dumps({**head, "message": message, "done": False, **more}).encode() + b"\n"
