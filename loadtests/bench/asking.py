"""Asking for chats: a closed loop with so many requests in flight, and reading what comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from uuid import uuid4

import aiohttp
import msgspec

from contract.errors import CutoverError
from loadtests.bench.process import Server

PATH = "/chat/sse"
END = b'data: {"step":"END"}\n\n'
TOPICS = ("rivers", "bridges", "clocks", "bread", "sails", "maps", "kites", "glass")
QUESTIONS = tuple(f"Tell me about {topic}, in plain words." for topic in TOPICS)
# The last two make the model call tools.
PROBES = (*QUESTIONS[:4], "写一首关于河流的短诗。", "What is 12*7?", "请计算 36*41，再算 5+6")


class AnswerBroken(CutoverError):
    """A server did not answer a chat request as it should: the figures would be worthless."""

    def __init__(self, server: str, status: int, answer: bytes) -> None:
        super().__init__(f"{server!r} answered {status} {answer[-200:]!r}")


def bodies(tag: str = "", questions: Sequence[str] = QUESTIONS) -> Iterator[dict[str, Any]]:
    """Yield bodies under ids nobody has used; date and time are fixed, so that answers are too."""
    tag = tag or uuid4().hex[:12]
    for number in count():
        yield {
            "message_id": f"{tag}-{number}",
            "content": questions[number % len(questions)],
            "user_name": "Alice",
            "prompt_params": {"current_date": "2026-11-21", "current_time": "12:00:00"},
        }


@asynccontextmanager
async def client(in_flight: int) -> AsyncIterator[aiohttp.ClientSession]:
    """Open a client that keeps its connections, as balancers and gateways do."""
    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


async def ask(session: aiohttp.ClientSession, server: Server, body: dict[str, Any]) -> bytes:
    """Ask once; gives the whole stream, complete; raises `AnswerBroken`."""
    data = msgspec.json.encode(body)
    headers = {"content-type": "application/json"}
    async with session.post(server.url + PATH, data=data, headers=headers) as response:
        answer = await response.read()
    if response.status != 200 or not answer.endswith(END) or b'"SUCCESS"' not in answer:  # noqa: PLR2004 (HTTP's OK)
        raise AnswerBroken(server.name, response.status, answer)
    return answer


async def keep_asking(
    session: aiohttp.ClientSession, server: Server, requests: int, in_flight: int
) -> None:
    """Ask so many times, with so many requests in flight."""
    left = iter(range(requests))
    asked = bodies()

    async def worker() -> None:
        for _ in left:
            await ask(session, server, next(asked))

    async with asyncio.TaskGroup() as workers:
        for _ in range(in_flight):
            workers.create_task(worker())
