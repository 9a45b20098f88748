"""Applications in this process as stacks: FastAPI's endpoints, without a socket, on the tape."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from fastapi import BackgroundTasks, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from openai import AsyncOpenAI, OpenAI

from contract.errors import Refused
from contract.flow import Request as FlowRequest
from contract.flows.declared import DeclaredFlow, declared_spec
from contract.records import Role
from contract.wire import Dialect, EventNames
from cutover_client import (
    CutoverTransport,
    ExchangeMiddleware,
    Gateway,
    current_exchange,
    effect,
    wrap_app,
)
from effects.tape import Exchange, TapeSession
from effects.testing import World
from router.gateway.in_process import client_bound
from router.remote.applications import ApplicationNotStarted, with_applications
from router.remote.stack import RemoteRefused
from router.serving.run import Run, RunRequest
from router.serving.stack import LocalStack
from router.stack import IncomingRequest
from tests.support.deployment import until
from tests.support.loopback_provider import Loopback, Wire, delta, finish, serving

DIALECT = Dialect(
    name="support",
    event=EventNames(path="type"),
    text={"text": "text"},
    terminal=("done",),
)
SPEC = declared_spec("support", DeclaredFlow(path="/support", dialect=DIALECT))
DONE = b'data: {"type": "done"}\n\n'
SHADOW: Any = ("shadow", "nearest")
SERVING: Any = ("serving", "live")
HELLO: Any = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": True}


def event(**fields: object) -> bytes:
    """Encode an event of the flow."""
    return f"data: {json.dumps(fields)}\n\n".encode()


def text(said: str) -> bytes:
    """Encode an event with a text."""
    return event(type="text", text=said)


@dataclass
class Service:
    """A service as its team wrote it; `done` is what it has really done."""

    client: AsyncOpenAI | None = None
    blocking: OpenAI | None = None
    done: list[str] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    def app(self) -> FastAPI:
        """Make the application."""
        app = FastAPI(lifespan=self.lifespan)
        for name in ("chat", "threaded", "refuse", "crash", "break_off", "endless", "deaf"):
            app.post(f"/{name}")(getattr(self, name))
        for name in ("later", "plain", "leave", "many"):
            app.post(f"/{name}")(getattr(self, name))
        return app

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[Mapping[str, str]]:
        """Open what the service needs, and close it."""
        self.done.append("opened")
        yield {"greeting": "Hi"}
        self.done.append("closed")

    @effect("orders.insert")
    async def insert(self, order: str) -> int:
        """Insert an order."""
        self.done.append(order)
        return len(self.done)

    @effect("orders.insert_blocking")
    def insert_blocking(self, order: str) -> int:
        """Insert an order; blocks."""
        self.done.append(order)
        return len(self.done)

    async def chat(self, request: Request) -> StreamingResponse:
        """Answer with what the model says, and insert an order."""
        self.asked.append(request)
        body = await request.json()

        async def events() -> AsyncIterator[bytes]:
            assert self.client is not None
            number = await self.insert(body["order"])
            async for chunk in await self.client.chat.completions.create(**HELLO):
                if said := chunk.choices[0].delta.content:
                    yield text(said)
            yield event(type="order", number=number)
            yield DONE

        headers = {"x-service": "1"}
        return StreamingResponse(events(), media_type="text/event-stream", headers=headers)

    def threaded(self, body: dict[str, str]) -> StreamingResponse:
        """Answer from a thread, with a client and an effect that block."""
        number = self.insert_blocking(body["order"])

        def events() -> Iterator[bytes]:
            assert self.blocking is not None
            for chunk in self.blocking.chat.completions.create(**HELLO):
                if said := chunk.choices[0].delta.content:
                    yield text(said)
            yield event(type="order", number=number)
            yield DONE

        return StreamingResponse(events(), media_type="text/event-stream")

    async def refuse(self) -> None:
        """Refuse."""
        raise HTTPException(403, {"code": "not_yours"}, {"x-why": "so"})

    async def crash(self) -> None:
        """Crash before anything."""
        message = "a secret"
        raise RuntimeError(message)

    async def break_off(self) -> StreamingResponse:
        """Crash in the middle."""

        async def events() -> AsyncIterator[bytes]:
            yield text("Hi")
            message = "a secret"
            raise RuntimeError(message)

        return StreamingResponse(events(), media_type="text/event-stream")

    async def endless(self) -> StreamingResponse:
        """Stream until the client leaves."""

        async def events() -> AsyncIterator[bytes]:
            try:
                yield text("Hi")
                self.begun.set()
                await asyncio.get_running_loop().create_future()
            finally:
                self.left.set()

        return StreamingResponse(events(), media_type="text/event-stream")

    async def deaf(self) -> None:
        """Hear nothing of a client that leaves."""
        self.begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.left.set()

    async def later(self, tasks: BackgroundTasks) -> StreamingResponse:
        """Work on after the answer."""
        tasks.add_task(self.insert, "later")
        return StreamingResponse(iter([DONE]), media_type="text/event-stream", background=tasks)

    async def plain(self) -> PlainTextResponse:
        """Answer with a page."""
        return PlainTextResponse("<html>", media_type="text/html")

    async def leave(self) -> None:
        """Ask for the end of the process."""
        raise SystemExit

    async def many(self, request: Request) -> StreamingResponse:
        """Stream a hundred events, and count how many were taken."""
        self.asked.append(request)

        async def events() -> AsyncIterator[bytes]:
            for number in range(100):
                self.done.append(str(number))
                yield text(f"{number}")
            yield DONE

        return StreamingResponse(events(), media_type="text/event-stream")


def stack(service: Service, path: str, **how: Any) -> LocalStack:
    """Make a stack of one endpoint of a service."""
    wrapped: Any = wrap_app(service.app(), path=f"/{path}", **how)
    return with_applications(LocalStack("legacy", {"support": wrapped}, "", bind=client_bound))


def request(role: Role, **more: Any) -> RunRequest:
    """Return a request for a run in a role."""
    incoming = IncomingRequest(
        b'{"order":"tea"}',
        ((b"content-type", b"application/json"), (b"host", b"a.example"), (b"x-own", b"1")),
        b"a=1",
        "10.0.0.9",
    )
    asked: FlowRequest[Any, Any] = FlowRequest({"order": "tea"}, None)
    return RunRequest(SPEC, "legacy", asked, role, incoming, "e", **more)


async def ran(stack: LocalStack, exchange: Exchange, kind: Any, **more: Any) -> Run:
    """Run a stack to its end."""
    role, policy = kind
    session = TapeSession(exchange, role, policy)
    run = stack.new_run(request(role, **more), session)
    run.start()
    assert await run.wait_stopped(30.0)
    return run


def frames(run: Run) -> list[bytes]:
    """Return the frames of a run."""
    return [frame.data for frame in run.frames]


def ending(run: Run) -> tuple[str, str, str]:
    """Return how a run ended: kind, blame and code."""
    assert run.outcome is not None
    return run.outcome.kind, run.outcome.blame, run.outcome.code


async def speak(wire: Wire) -> None:
    """Answer as a model."""
    await wire.head()
    await wire.events(delta(content="Hi "), delta(content="there"), finish(), b"[DONE]")
    await wire.end()


@asynccontextmanager
async def clients(service: Service) -> AsyncIterator[Loopback]:
    """Give a service its clients, on the tape."""
    async with serving(speak) as provider:
        key, url = "none", provider.base_url
        http = httpx2.AsyncClient(transport=CutoverTransport())
        with httpx2.Client(transport=CutoverTransport()) as blocking:
            service.blocking = OpenAI(api_key=key, base_url=url, http_client=blocking)
            async with AsyncOpenAI(api_key=key, base_url=url, http_client=http) as client:
                service.client = client
                yield provider


@pytest.mark.sockets
@pytest.mark.parametrize("path", ["chat", "threaded"])
async def test_it_is_served_and_played_as_it_streams(path: str) -> None:
    """Its model is asked once and its effect performed once, from coroutines and from threads."""
    service = Service()
    async with clients(service) as provider:
        flow, exchange = stack(service, path), World().exchange()
        served = await ran(flow, exchange, SERVING)
        whole = [text("Hi "), text("there"), event(type="order", number=1), DONE]
        assert (frames(served), ending(served)) == (whole, ("completed", "none", ""))
        successor = await ran(flow, exchange, ("fallback", "live"))
        exchange.tape.stop_recording()
        shadow = await ran(flow, exchange, SHADOW)
        assert frames(shadow) == frames(successor) == whole
        assert (service.done, len(provider.requests)) == (["tea"], 1)
        assert {play.how for play in shadow.session.plays} == {"exact"}
        await exchange.close()


@pytest.mark.sockets
async def test_it_gets_the_request_as_the_client_sent_it() -> None:
    """Body, query and headers, those of the exchange beside them; the answer's headers go back."""
    service = Service()
    async with clients(service):
        run = await ran(stack(service, "chat"), World().exchange(), SERVING)
    [asked] = service.asked
    assert (await asked.json(), asked.url.path, asked.url.query) == (
        {"order": "tea"},
        "/chat",
        "a=1",
    )
    assert asked.client is not None
    assert asked.client.host == "10.0.0.9"
    wanted = {"host": "a.example", "x-own": "1", "x-cutover-exchange": "e"}
    assert wanted.items() <= dict(asked.headers).items()
    assert (b"x-service", b"1") in run.headers


async def test_a_refusal_is_passed_on() -> None:
    """Status, headers and body, as a service's."""
    run = await ran(stack(Service(), "refuse"), World().exchange(), SERVING)
    assert run.outcome is not None
    refused = run.outcome.refusal
    assert isinstance(refused, RemoteRefused)
    assert isinstance(refused, Refused)
    assert (refused.status, refused.body) == (403, b'{"detail":{"code":"not_yours"}}')
    assert (b"x-why", b"so") in refused.headers


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("crash", ("failed", "stack", "crash")),
        ("break_off", ("failed", "stack", "crash")),
        ("plain", ("failed", "stack", "content_type")),
        ("leave", ("failed", "stack", "crash")),
    ],
)
async def test_a_fault_is_the_stacks(path: str, found: tuple[str, str, str]) -> None:
    """An exception before the answer or within it, a page, and the end of the process."""
    run = await ran(stack(Service(), path), World().exchange(), SERVING)
    assert ending(run) == found
    assert "a secret" not in run.why


async def test_what_ends_without_an_answer_has_failed() -> None:
    """An application that returns, and one that only begins."""

    async def silent(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive, send

    async def begins(scope: Any, receive: Any, send: Any) -> None:
        del receive
        if scope["type"] == "http":
            kind = (b"content-type", b"text/event-stream")
            await send({"type": "http.response.start", "status": 200, "headers": [kind]})
            await send({"type": "http.response.body", "body": text("Hi"), "more_body": True})

    for app in (silent, begins):
        wrapped: Any = wrap_app(app)
        own = with_applications(LocalStack("legacy", {"support": wrapped}, "", bind=client_bound))
        run = await ran(own, World().exchange(), SERVING)
        assert ending(run) == ("failed", "stack", "crash")


@pytest.mark.parametrize("path", ["endless", "deaf"])
async def test_a_client_that_leaves_is_told(path: str) -> None:
    """A stream ends by itself; what hears nothing is cancelled a moment later."""
    service = Service()
    flow, session = stack(service, path), TapeSession(World().exchange(), "serving")
    run = flow.new_run(request("serving"), session)
    run.start()
    await service.begun.wait()
    run.fence(run._cancelled())  # noqa: SLF001 - as the stream does
    assert await run.wait_stopped(5.0)
    assert service.left.is_set()


@pytest.mark.virtual
async def test_silence_has_a_limit() -> None:
    """As that of a stack behind an address."""
    service = Service()
    own = stack(service, "endless", idle_seconds=3.0, total_seconds=9.0)
    run = await ran(own, World().exchange(), SERVING)
    assert ending(run) == ("timeout", "stack", "idle_timeout")
    late = await ran(stack(Service(), "deaf", first_event_seconds=2.0), World().exchange(), SERVING)
    assert ending(late) == ("timeout", "stack", "first_event_timeout")


async def test_it_waits_for_a_client_that_reads_slowly() -> None:
    """It is not run ahead further than the limit."""
    service = Service()
    session = TapeSession(World().exchange(), "serving")
    run = stack(service, "many").new_run(request("serving", unsent_limit=200), session)
    run.start()
    await until(lambda: run.backpressure.waiting)
    assert len(service.done) < 20
    taken = 0
    while run.outcome is None:
        if taken < len(run.frames):
            run.backpressure.take(len(run.frames[taken].data))
            taken += 1
        else:
            await run.changed.wait()
    assert len(service.done) == 100
    assert ending(run) == ("completed", "none", "")


async def test_it_may_work_on_after_its_answer() -> None:
    """What a background task does is on the tape, and the run ends after it."""
    service, exchange = Service(), World().exchange()
    run = await ran(stack(service, "later"), exchange, SERVING)
    assert (service.done, ending(run)) == (["later"], ("completed", "none", ""))
    assert [entry.site for entry in exchange.tape.entries] == ["orders.insert"]
    await exchange.close()


async def test_its_lifespan_is_run_once_and_closed() -> None:
    """Requests get its state; of two flows of one application there is one."""
    service = Service()
    app = service.app()
    flows: Any = {"support": wrap_app(app, path="/many"), "other": wrap_app(app, path="/chat")}
    own = with_applications(LocalStack("legacy", flows, "", bind=client_bound))
    async with own.opened():
        await ran(own, World().exchange(), SERVING)
        await ran(own, World().exchange(), SERVING)
        assert (service.done.count("opened"), service.done.count("closed")) == (1, 0)
    assert service.done[-1] == "closed"
    assert service.asked[0].state.greeting == "Hi"


async def test_a_lifespan_that_fails_is_said() -> None:
    """The router does not start; an application that knows none does."""

    @asynccontextmanager
    async def failing(app: FastAPI) -> AsyncIterator[None]:
        if app.title == "FastAPI":
            message = "no database"
            raise RuntimeError(message)
        yield

    async def bare(scope: Any, receive: Any, send: Any) -> None:
        del receive, send
        assert scope["type"] == "http"

    flows: Any = {"support": wrap_app(FastAPI(lifespan=failing))}
    with pytest.raises(ApplicationNotStarted, match="no database"):
        async with with_applications(LocalStack("legacy", flows, "")).opened():
            pass
    flows = {"support": wrap_app(bare)}
    async with with_applications(LocalStack("legacy", flows, "")).opened():
        pass


async def test_its_middleware_for_http_finds_the_exchange_in_process() -> None:
    """A service that has it is wrapped as it is: nothing is asked over HTTP."""
    app = FastAPI()
    app.add_middleware(ExchangeMiddleware, gateway=Gateway("http://127.0.0.1:1", "none"))
    done: list[str] = []

    @effect("insert")
    async def insert(item: str) -> str:
        done.append(item)
        return item

    @app.post("/support")
    async def endpoint() -> JSONResponse:
        await insert("tea")
        return JSONResponse({"type": "done"})

    ndjson = declared_spec(
        "support",
        DeclaredFlow(
            path="/support",
            dialect=Dialect(
                name="n", framing="ndjson", event=EventNames(path="type"), terminal=("done",)
            ),
        ),
    )
    flows: Any = {"support": wrap_app(app)}
    own = with_applications(LocalStack("legacy", flows, "", bind=client_bound))
    exchange = World().exchange()
    roles: tuple[Role, ...] = ("serving", "fallback")
    for role in roles:
        asked = RunRequest(ndjson, "legacy", FlowRequest({}, None), role, exchange="e")
        run = own.new_run(asked, TapeSession(exchange, role))
        run.start()
        assert await run.wait_stopped(5.0)
        assert frames(run) == [b'{"type":"done"}']
    assert done == ["tea"]
    assert current_exchange() is None
    await exchange.close()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"app": json}, "a module is no ASGI application"),
        ({"path": "chat"}, "'chat' does not begin with a slash"),
        ({"idle_seconds": 0}, "seconds above 0"),
    ],
)
def test_what_is_wrapped_wrongly_is_refused(wrong: dict[str, Any], said: str) -> None:
    """Where the module is imported, and not at the first request."""
    given: dict[str, Any] = {"app": FastAPI(), **wrong}
    with pytest.raises(TypeError, match=said):
        wrap_app(given.pop("app"), **given)
