"""The simulated provider on a socket: in the caller's event loop, closed completely."""

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Self, cast

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from loadtests.simulator.answer import (
    Answer,
    Cut,
    NeverAnswers,
    Reset,
    Silence,
    SlowFirst,
    limit_answer,
)
from loadtests.simulator.behaviour import answer_request
from loadtests.simulator.embeddings import answer_embeddings
from loadtests.simulator.plan import CREATED, Plan, plan_answer, plan_body, plan_raw
from loadtests.simulator.request import ModelRequest, read_request

HOST = "127.0.0.1"
MODELS = [
    {"id": name, "object": "model", "created": CREATED, "owned_by": "simulator"}
    for name in ("sim-chat", "gpt-4.1", "gpt-4.1-mini", "sim-embed")
]
KEYS = frozenset({"authorization", "x-api-key", "api-key"})
"""Headers that hold credentials: never kept."""
Predicate = Callable[[ModelRequest], bool]
Reply = Answer | Callable[[ModelRequest], Answer]


class Received(msgspec.Struct):
    """A request as it came, without credentials; `body` is its JSON, None without one.

    `ended` becomes true once the answer has gone out as planned; `cancelled_at` (seconds on the
    loop's clock) is set instead when the client leaves before.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    ended: bool = False
    cancelled_at: float | None = None


class Simulator:
    """A model provider on loopback: `async with Simulator() as sim`, then `sim.base_url`.

    A rule answers first, then the queue, then `behaviour`. `chunk_ms` is the pause between two
    chunks. Without `keep`, `requests` stays empty.
    """

    def __init__(self, port: int = 0, *, chunk_ms: float = 0.0, keep: bool = True) -> None:
        self.port, self.requests = port, list[Received]()
        self._pause, self._keep = chunk_ms / 1000, keep
        self._rules: list[tuple[Predicate, Reply]] = []
        self._queue: deque[Reply] = deque()
        self._other: dict[str, Callable[[Any], str]] = {}
        self._answering: set[asyncio.Task[object]] = set()
        self._changed = asyncio.Event()

    @property
    def url(self) -> str:
        """The origin: the base URL of Anthropic's SDK, whose API has to be scripted with `at`."""
        return f"http://{HOST}:{self.port}"

    @property
    def base_url(self) -> str:
        """The base URL of OpenAI's SDK."""
        return f"{self.url}/v1"

    def script(self, answers: Iterable[Reply]) -> None:
        """Queue answers: each is given to one model request that no rule answers."""
        self._queue.extend(answers)

    def on(self, when: str | Predicate, answer: Reply) -> None:
        """Answer each model request that fits: a text in the last user message, or a predicate."""
        fits = when if callable(when) else lambda request: when in request.question
        self._rules.append((fits, answer))

    def at(self, path: str, answer: Callable[[Any], str]) -> None:
        """Answer requests of another API: `answer` returns the exact body for their JSON."""
        self._other[path] = answer

    async def until(self, condition: Callable[[Self], bool]) -> None:
        """Wait until a condition on `requests` holds; it is evaluated whenever one changes."""
        while not condition(self):
            self._changed.clear()
            await self._changed.wait()

    async def __aenter__(self) -> Self:
        """Listen."""
        app = web.Application(client_max_size=0)  # no limit: pictures are long
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, self.port, backlog=2_048).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Drop all connections and wait for the requests they carried."""
        for connection in self._runner.server.connections if self._runner.server else ():
            if connection.transport is not None:
                connection.transport.abort()
        if self._answering:
            await asyncio.wait(self._answering)
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        received = _received(request, raw)
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self._answering.add(task)
        if self._keep:
            self.requests.append(received)
        self._changed.set()
        plan = self._plan(request.method, request.path, raw)
        try:
            response = await play(plan, request, self._pause)
            received.ended = True
        except (asyncio.CancelledError, ConnectionError):  # the client has left
            received.cancelled_at = asyncio.get_running_loop().time()
            raise
        finally:
            self._answering.discard(task)
            self._changed.set()
        return response

    def _plan(self, method: str, path: str, raw: bytes) -> Plan:
        try:
            match method, path:
                case "GET", "/v1/models":
                    return plan_body(
                        msgspec.json.encode({"object": "list", "data": MODELS}), Answer()
                    )
                case "POST", "/v1/embeddings":
                    return plan_body(answer_embeddings(raw), Answer())
                case "POST", "/v1/chat/completions":
                    request = read_request(raw)
                case "POST", _ if path in self._other:
                    return plan_raw(self._other[path](msgspec.json.decode(raw)))
                case _:
                    refusal = Answer(status=404, text=f"There is no {method} {path}.")
                    return plan_body(b"", refusal)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            refusal = Answer(status=400, text=f"The body is no such request: {error!r}")
            return plan_body(b"", refusal)
        return plan_answer(request, self._answer(request))

    def _answer(self, request: ModelRequest) -> Answer:
        fitting = (reply for fits, reply in self._rules if fits(request))
        reply = next(fitting, None) or (self._queue.popleft() if self._queue else None)
        if reply is None:
            return limit_answer(answer_request(request), request.max_tokens)
        return reply if isinstance(reply, Answer) else reply(request)


def _received(request: web.Request, raw: bytes) -> Received:
    headers = {name.lower(): value for name, value in request.headers.items()}
    kept = {name: value for name, value in headers.items() if name not in KEYS}
    try:
        body = msgspec.json.decode(raw) if raw else None
    except ValueError:  # no JSON, or no UTF-8
        body = None
    return Received(request.method, request.path, kept, body)


async def play(plan: Plan, request: web.Request, pause: float) -> web.StreamResponse:
    """Send a plan, its parts `pause` seconds apart; a client that leaves cancels this."""
    response = web.StreamResponse(status=plan.status, headers=CIMultiDict(plan.headers))
    response.headers["content-type"] = plan.media
    if isinstance(plan.fault, NeverAnswers):
        await asyncio.Event().wait()
    if isinstance(plan.fault, Reset):
        _close(request, reset=True)
        return response
    slow = plan.fault if isinstance(plan.fault, SlowFirst) else SlowFirst(0)
    if slow.headers:
        await response.prepare(request)
    await asyncio.sleep(slow.seconds)
    await response.prepare(request)  # which does nothing the second time
    for part in plan.parts:
        await asyncio.sleep(pause * part.pauses)
        await response.write(part.data)
    if isinstance(plan.fault, Silence):
        await asyncio.Event().wait()
    if isinstance(plan.fault, Cut):
        _close(request)
    return response


def _close(request: web.Request, *, reset: bool = False) -> None:
    """Close after what was written has gone out; with `reset`, drop it and send an RST."""
    transport = cast("asyncio.Transport", request.transport)
    if not reset:
        transport.close()
        return
    number = transport.get_extra_info("socket").fileno()
    with socket.socket(fileno=os.dup(number)) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
