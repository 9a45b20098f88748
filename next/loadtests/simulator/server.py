"""The simulated provider on a socket: in the caller's event loop, closed completely."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import msgspec
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from loadtests.simulator.answer import Answer
from loadtests.simulator.behaviour import answer_request
from loadtests.simulator.connection import Connection, play
from loadtests.simulator.embeddings import answer_embeddings
from loadtests.simulator.plan import Plan, plan_answer, plan_body
from loadtests.simulator.request import Api, ModelRequest, read_request
from loadtests.simulator.wire import CREATED

HOST = "127.0.0.1"
MODELS = ("sim-chat", "gpt-4.1", "gpt-4.1-mini", "claude-sim", "sim-embed")
KEYS = frozenset({"authorization", "x-api-key", "api-key"})
"""Headers that hold credentials: never kept."""
APIS: Mapping[str, Api] = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}

When = str | Callable[[ModelRequest], bool]
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
        self._rules: list[tuple[When, Reply]] = []
        self._queue: deque[Reply] = deque()
        self._state = ServerState()
        self._changed = asyncio.Event()

    @property
    def url(self) -> str:
        """The origin: the base URL of Anthropic's SDK."""
        return f"http://{HOST}:{self.port}"

    @property
    def base_url(self) -> str:
        """The base URL of OpenAI's SDK."""
        return f"{self.url}/v1"

    def script(self, answers: Iterable[Reply]) -> None:
        """Queue answers: each is given to one model request that no rule answers."""
        self._queue.extend(answers)

    def on(self, when: When, answer: Reply) -> None:
        """Answer each model request that fits: a text in the last user message, or a predicate."""
        self._rules.append((when, answer))

    async def until(self, condition: Callable[[Self], bool]) -> None:
        """Wait until a condition on `requests` holds; it is evaluated whenever one changes."""
        while not condition(self):
            self._changed.clear()
            await self._changed.wait()

    async def __aenter__(self) -> Self:
        """Listen.

        uvicorn's protocol runs without uvicorn's server, which takes over the signals of the
        process, ticks ten times a second (and so moves a virtual clock), and on closing waits for
        answers that never end.
        """
        config = Config(
            self,
            http=Connection,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            timeout_keep_alive=75,  # as providers do: 5 s breaks calls about to use a connection
        )
        config.load()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(config, self._state, {}, loop),
            HOST,
            self.port,
            backlog=2_048,
            family=socket.AF_INET,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drop all connections and wait for the requests they carried."""
        self._server.close()
        connections = [one for one in self._state.connections if isinstance(one, Connection)]
        for connection in connections:
            connection.transport.abort()
        if connections:
            await asyncio.wait([one.lost for one in connections])
        if self._state.tasks:
            await asyncio.wait(self._state.tasks)
        await self._server.wait_closed()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI)."""
        raw = await _read_body(receive)
        connection: Connection = scope["state"]["connection"]
        received = _received(scope, raw)
        if self._keep:
            self.requests.append(received)
        self._changed.set()
        plan = self._plan(scope["method"], scope["path"], raw)
        if await play(plan, connection, send, self._pause):
            received.cancelled_at = connection.lost.result()
        else:
            received.ended = True
        self._changed.set()

    def _plan(self, method: str, path: str, raw: bytes) -> Plan:
        api = APIS.get(path, "chat")
        try:
            match method, path:
                case "GET", "/v1/models":
                    return plan_body(_catalogue(), Answer())
                case "POST", "/v1/embeddings":
                    return plan_body(answer_embeddings(raw), Answer())
                case "POST", _ if path in APIS:
                    request = read_request(api, raw)
                case _:
                    refusal = Answer(status=404, text=f"There is no {method} {path}.")
                    return plan_body(b"", refusal, api)
        except ValueError as error:
            return plan_body(b"", Answer(status=400, text=str(error)), api)
        return plan_answer(request, self._answer(request))

    def _answer(self, request: ModelRequest) -> Answer:
        fitting = (reply for when, reply in self._rules if _fits(when, request))
        reply = next(fitting, None) or (self._queue.popleft() if self._queue else None)
        if reply is None:
            return answer_request(request)
        return reply if isinstance(reply, Answer) else reply(request)


def _fits(when: When, request: ModelRequest) -> bool:
    return when in request.question if isinstance(when, str) else when(request)


async def _read_body(receive: Receive) -> bytes:
    raw, more = b"", True
    while more:
        message = await receive()
        raw += message.get("body", b"")
        more = message.get("more_body", False)
    return raw


def _received(scope: Scope, raw: bytes) -> Received:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    kept = {name: value for name, value in headers.items() if name not in KEYS}
    try:
        body = msgspec.json.decode(raw) if raw else None
    except ValueError:  # no JSON, or no UTF-8
        body = None
    return Received(scope["method"], scope["path"], kept, body)


def _catalogue() -> bytes:
    data = [
        {"id": name, "object": "model", "created": CREATED, "owned_by": "simulator"}
        for name in MODELS
    ]
    return msgspec.json.encode({"object": "list", "data": data})
