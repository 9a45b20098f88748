"""Many clients at once over real sockets, and a model whose every call is counted."""

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp

from loadtests.simulator import Answer, FunctionCall, ModelRequest, Simulator

T = TypeVar("T")
_NUMBER = re.compile(r"item (\d+)")
_WORDS = ("one", "stream", "that", "is", "whole", "says", "each", "word", "once", "in", "order")


def text_of(number: int) -> str:
    """Return all that the model says of an item."""
    return f"Item {number}: " + " ".join(random.Random(number).choices(_WORDS, k=20))


def orders(number: int) -> bool:
    """Whether the model asks for a tool before it speaks of an item."""
    return number % 3 == 0


@dataclass
class Model:
    """A simulated model that knows items; `calls` are counted by item and round."""

    tool: str = "note"
    calls: Counter[tuple[int, int]] = field(default_factory=Counter)

    def answer(self, request: ModelRequest) -> Answer:
        """Ask for a tool first, or speak of the item."""
        found = _NUMBER.search(request.question)
        assert found is not None
        number, rounds = int(found[1]), sum(one.role == "tool" for one in request.turn)
        self.calls[number, rounds] += 1
        if orders(number) and not rounds:
            return Answer(tool_calls=(FunctionCall(self.tool, json.dumps({"number": number})),))
        return Answer(text=text_of(number))


@asynccontextmanager
async def provider(model: Model, chunk_ms: float) -> AsyncIterator[Simulator]:
    """Serve a model."""
    async with Simulator(chunk_ms=chunk_ms, keep=False) as sim:
        sim.on(lambda asked: bool(_NUMBER.search(asked.question)), model.answer)
        yield sim


@dataclass
class Heard:
    """What a client heard: `broken` where the connection ended before the answer did."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes = b""
    left: bool = False
    broken: str = ""
    began: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    ended: float = 0.0
    """When, in the loop's time."""

    @property
    def events(self) -> list[Any]:
        """The data of its events that are JSON."""
        lines = self.raw.decode().split("\n")
        return [json.loads(one[6:]) for one in lines if one.startswith("data: {")]


def client(timeout: float = 180.0) -> aiohttp.ClientSession:
    """Return a client of as many connections as are asked for."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        timeout=aiohttp.ClientTimeout(total=timeout),
    )


async def ask(
    session: aiohttp.ClientSession,
    url: str,
    body: Any,
    *,
    leaves_after: int | None = None,
    each: float = 0.0,
    headers: dict[str, str] | None = None,
) -> Heard:
    """Post a request and read the stream; leave after some events, or take time for each."""
    heard = Heard()
    try:
        async with session.post(url, json=body, headers=headers) as answer:
            heard.status = answer.status
            heard.headers = {k.lower(): v for k, v in answer.headers.items()}
            while piece := await answer.content.readany():
                heard.raw += piece
                if leaves_after is not None and heard.raw.count(b"\n\n") >= leaves_after:
                    heard.left = True
                    break
                if each:
                    await asyncio.sleep(each)  # a client that reads slowly
    except (aiohttp.ClientError, OSError) as error:
        heard.broken = type(error).__name__
    heard.ended = asyncio.get_running_loop().time()
    return heard


async def at_once(
    limit: int, work: Iterable[T], do: Callable[[T], Awaitable[None]], *, every: float = 0.0
) -> None:
    """Do all work, at most `limit` at once, and begin one `every` so many seconds at most."""
    left = iter(work)

    async def one_by_one() -> None:
        for one in left:
            await do(one)
            if every:
                await asyncio.sleep(every)

    async with asyncio.TaskGroup() as group:
        for _ in range(limit):
            group.create_task(one_by_one())
