"""Sending messages to a router as a client would, and keeping what came back."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from contract.wire.sse import SseDecoder, is_comment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cutover.demo.messages import Message

_PARALLEL = 8


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: who was assigned and who served, the frames, and the first one's delay."""

    message: Message
    status: int
    exchange: str
    assigned: str
    served: str
    body: bytes
    first_frame: float

    @property
    def events(self) -> list[str]:
        """The events' data, in order."""
        decoder = SseDecoder()
        return [event.text for event in decoder.feed(self.body)]

    @property
    def complete(self) -> bool:
        """Whether the answer ended well."""
        events = self.events
        return self.status == 200 and bool(events) and '"END"' in events[-1]  # noqa: PLR2004 - HTTP

    @property
    def takeover(self) -> str | None:
        """The comment that says who took over, if somebody did."""
        frames = self.body.split(b"\n\n")
        return next((frame.decode() for frame in frames if is_comment(frame)), None)


async def send_all(
    url: str, messages: Sequence[Message], done: Callable[[Answered], None]
) -> list[Answered]:
    """Send all messages, some at a time; those of one chat one after the other."""
    chats: dict[str, list[Message]] = {}
    for message in messages:
        chats.setdefault(message.chat, []).append(message)
    gate = asyncio.Semaphore(_PARALLEL)
    answers: list[Answered] = []
    async with aiohttp.ClientSession() as session:

        async def chat(turns: Sequence[Message]) -> None:
            async with gate:
                for message in turns:
                    answer = await send(session, url, message)
                    answers.append(answer)
                    done(answer)

        await asyncio.gather(*(chat(turns) for turns in chats.values()))
    return answers


async def send(session: aiohttp.ClientSession, url: str, message: Message) -> Answered:
    """Send one message and read the whole stream."""
    began = time.perf_counter()
    first = 0.0
    pieces: list[bytes] = []
    async with session.post(f"{url}/chat/sse", json=message.body) as response:
        async for piece in response.content.iter_any():
            first = first or time.perf_counter() - began
            pieces.append(piece)
        headers = response.headers
        return Answered(
            message=message,
            status=response.status,
            exchange=headers.get("x-cutover-exchange", ""),
            assigned=headers.get("x-cutover-assigned", ""),
            served=headers.get("x-cutover-served", "").split(" ")[0],
            body=b"".join(pieces),
            first_frame=first,
        )
