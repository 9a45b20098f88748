"""Exchanges that are compared in tests: each is served by one stack, and played to the other."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import pytest

from compare.differences import Pair
from cutover import CutoverError, Event, Exchange, Request, Stack, effect
from cutover.flow import Flow
from cutover.wire import AnswerHead, End, Piece, find_dialect
from router.captures.lines import played_line, served_lines
from router.driver import Candidate
from router.exchange import Served, finish
from router.serve import serve
from router.services import ServiceFlow, ServiceRequest
from router.shadow import Played, play
from rules.flows import FLOWS
from tests.flows import golden
from tests.flows.golden_case import SETTINGS, Case, cases_of
from tests.support.stage import staged

Name = Literal["legacy", "graph"]
CHUNK_MS, LONG_MS = 40.0, 600.0
"""What the simulated model waits before each chunk, and where a text takes seconds."""

CASES: Mapping[str, Case] = {
    case.name: case for case in cases_of(Path(__file__).with_suffix(".toml"))
}
"""Healthy exchanges of the built-in flows, by name."""

# Services

ASKED = ServiceRequest("POST", "/ask", "application/json", '{"text":"Tea, please."}')
SERVICES: Mapping[str, ServiceFlow] = {
    name: ServiceFlow(name, {"/ask": ("POST",)}, find_dialect(dialect))
    for name, dialect in (("completions", "chat-completions"), ("lines", "ndjson"))
}
"""Declared flows of services, by name: SSE, and lines of JSON."""
WORDS = ("One ", "cup ", "of ", "tea, ", "and ", "two ", "of ", "milk.")


@effect("kitchen.ask")
async def ask_kitchen(question: str) -> AsyncIterator[str]:
    """Yield the words of an answer, 0.3 s apart."""
    for word in WORDS if question else ():
        await asyncio.sleep(0.3)
        yield word


@effect("kitchen.order", writes=True)
async def order(item: str, count: int) -> str:
    """Order something; return a number."""
    return f"{item} {count}"


def sse(**data: Any) -> Piece:
    """Return an event with these fields of a chunk's one choice; `usage` stands beside it."""
    usage = data.pop("usage", None)
    choice = {"index": 0, "delta": {}, "finish_reason": None} | data
    body = {"id": "c-1", "choices": [] if usage else [choice]} | ({"usage": usage} if usage else {})
    return Piece(b"data: " + json.dumps(body).encode() + b"\n\n")


def completing(question: str = "Tea, please.", counts: Sequence[int] = (1,)) -> Stack:
    """Return a service that answers as OpenAI's API does, with a tool call behind the text.

    It asks its kitchen a question, and orders so many.
    """

    async def completions(_: Request[Any, Any]) -> AsyncIterator[Event]:
        yield AnswerHead(200, (("content-type", "text/event-stream"),))
        yield sse(delta={"role": "assistant", "content": ""})
        yield sse(delta={"reasoning_content": "Tea."})
        async for word in ask_kitchen(question):
            yield sse(delta={"content": word}, content_filter_results={"hate": 0})
        for count in counts:
            await order("tea", count)
        function = {"name": "order", "arguments": '{"item":"tea"}'}
        yield sse(delta={"tool_calls": [{"index": 0, "id": "call_1", "function": function}]})
        yield sse(finish_reason="tool_calls")
        yield sse(usage={"prompt_tokens": 3, "completion_tokens": 8, "total_tokens": 11})
        yield Piece(b"data: [DONE]\n\n")
        yield End()

    return completions


async def lines(_: Request[Any, Any]) -> AsyncIterator[Event]:
    """Answer in lines of JSON, as Ollama does."""
    yield AnswerHead(200, (("content-type", "application/x-ndjson"),))
    async for word in ask_kitchen("Tea, please."):
        yield Piece(json.dumps({"message": {"content": word}, "done": False}).encode() + b"\n")
    await order("tea", 1)
    yield Piece(b'{"message":{"content":""},"done":true,"done_reason":"stop"}\n')
    yield End()


STACKS: dict[str, dict[str, Stack]] = {
    name: {"completions": completing(), "lines": lines} for name in ("legacy", "graph")
}
"""What serves the declared flows, by stack: both alike."""
PACKAGES = {"legacy": "legacy", "graph": "graph_impl"}
ALL: tuple[str, ...] = (*CASES, *SERVICES)
"""The names of all exchanges."""


def flow_of(exchange: str) -> Flow:
    """Return the flow of an exchange."""
    return SERVICES[exchange] if exchange in SERVICES else FLOWS[CASES[exchange].flow]


def stacks(exchange: str, name: Name) -> dict[str, Stack]:
    """Return a stack's flows, which a test may patch."""
    if exchange in SERVICES:
        return STACKS[name]
    found: dict[str, Stack] = import_module(PACKAGES[name]).STACKS
    return found


@dataclass(frozen=True, slots=True)
class Compared:
    """An exchange, its shadow, and the pair that captures make of them."""

    flow: Flow
    served: Served
    played: Played
    pair: Pair


async def run(exchange: str, serves: Name = "legacy") -> Compared:
    """Serve an exchange by one stack, play its tape to the other, and pair their lines."""
    flow, other = flow_of(exchange), "graph" if serves == "legacy" else "legacy"
    if exchange in SERVICES:
        request: Request[Any, Any] = Request(ASKED, None, "/ask")
        served = Served(exchange, flow, request, Exchange(), serves)
        with suppress(CutoverError):
            async for _ in serve(served, [Candidate(serves, STACKS[serves][exchange])], _never):
                pass
        await finish(served)
        played = await play(served.tape, flow, request, Candidate(other, STACKS[other][exchange]))
    else:
        pause = LONG_MS if exchange.endswith("long") else CHUNK_MS
        async with staged(chunk_ms=pause, **SETTINGS) as stage:
            told, _ = await golden.record(stage, CASES[exchange], serves)
            served = told.exchange
            played = await stage.play(told, other)
    return compared(served, played)


def compared(served: Served, played: Played) -> Compared:
    """Pair an exchange with its shadow."""
    runs = served_lines(served, 0)
    assert runs[0].tape is not None
    pair = Pair(runs[-1], played_line(served, played, 0), runs[0].tape)
    return Compared(served.flow, served, played, pair)


async def _never(*_: Any) -> None:
    pytest.fail("no service pauses")
