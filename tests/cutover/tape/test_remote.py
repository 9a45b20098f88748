"""A service's side of the tape: which gateway it trusts, and what it does where none answers."""

import asyncio
import socket
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import flask
import httpx
import httpx2
import msgspec
import pytest
from openai import AsyncOpenAI, OpenAI

from cutover import EffectFailed, Exchange, Run, TapeTransport, effect
from cutover.tape import current_run, outside
from cutover.tape.remote import RemoteRun, TapeMiddleware, TapeWsgiMiddleware
from tests.support.origin import Origin, Reply

pytestmark = pytest.mark.sockets

RUN = "0123456789abcdef0123456789abcdef"
GATEWAYS = tomllib.loads(Path(__file__).with_name("gateways.toml").read_text("utf-8"))


@effect("count")
async def count() -> int:
    """Return how many there are."""
    return 7


@effect("count.now")
def count_now() -> int:
    """Return how many there are, blocking."""
    return 8


@effect("order", writes=True)
async def order(item: str) -> str:
    """Order something."""
    return item


async def app(scope: Any, _receive: Any, send: Any) -> None:
    """Answer with the run that the request belongs to, and what the tools return."""
    assert scope["type"] == "http"
    run = current_run()
    said: dict[str, Any] = {"run": type(run).__name__}
    match scope["path"]:
        case "/reads":
            said["result"] = [await count(), count_now()]
        case "/orders":
            try:
                said["result"] = await order("tea")
            except EffectFailed as error:
                said["result"] = error.kind
        case _:
            pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": msgspec.json.encode(said)})


async def get(path: str = "/", **headers: str) -> tuple[int, dict[str, Any]]:
    """Ask the service; the headers' names begin with x-cutover-."""
    named = {f"x-cutover-{name}": value for name, value in headers.items()}
    transport = httpx.ASGITransport(app=TapeMiddleware(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        answer = await client.get(path, headers=named)
        return answer.status_code, answer.json()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment in which nothing is configured."""
    monkeypatch.delenv("CUTOVER_GATEWAY", raising=False)
    monkeypatch.delenv("CUTOVER_GATEWAY_KEY", raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("configured", "gateway", "trusted"),
    [(*row, state == "trusted") for state, rows in GATEWAYS.items() for row in rows],
)
async def test_only_a_known_gateway_gets_the_calls(
    environment: pytest.MonkeyPatch, configured: str, gateway: str, trusted: bool
) -> None:
    """A header cannot send a service's requests and keys elsewhere."""
    environment.setenv("CUTOVER_GATEWAY", configured)
    status, said = await get(gateway=f"{gateway}/runs/{RUN}")
    if trusted:
        assert (status, said) == (200, {"run": "RemoteRun"})
    else:
        assert (status, said["code"]) == (403, "gateway_not_trusted")


@pytest.mark.parametrize("run", ["x", RUN[1:], RUN.upper(), f"{RUN}/x", f"{RUN}?", f"../{RUN}"])
async def test_the_address_is_that_of_a_run(environment: pytest.MonkeyPatch, run: str) -> None:
    """No other path of a local server can be asked by a header."""
    environment.setenv("CUTOVER_GATEWAY", "http://router")
    assert (await get(gateway=f"http://router/runs/{run}"))[0] == 403


@pytest.mark.parametrize("key", ["", "wrong", "secret "])
async def test_without_the_key_no_header_is_believed(
    environment: pytest.MonkeyPatch, key: str
) -> None:
    """The request is refused: performed without a tape, a shadow would not be one."""
    environment.setenv("CUTOVER_GATEWAY_KEY", "secret")
    gateway = f"http://127.0.0.1:1/runs/{RUN}"
    status, _ = await get(gateway=gateway, **({"key": key} if key else {}))
    assert status == 403
    assert await get(gateway=gateway, key="secret") == (200, {"run": "RemoteRun"})


async def test_without_headers_it_does_nothing(environment: pytest.MonkeyPatch) -> None:
    """A user of the service itself."""
    environment.setenv("CUTOVER_GATEWAY_KEY", "secret")
    assert await get("/reads") == (200, {"run": "NoneType", "result": [7, 8]})
    assert await get("/orders", run=RUN) == (200, {"run": "NoneType", "result": "tea"})
    assert outside == {}


async def test_a_run_of_this_process_keeps_precedence(environment: pytest.MonkeyPatch) -> None:
    """A stack that calls an application within its own process."""
    environment.setenv("CUTOVER_GATEWAY", "http://router")
    async with Exchange() as exchange:
        with Run(exchange, "legacy").current():
            status, said = await get("/orders", gateway=f"http://127.0.0.1:1/runs/{RUN}")
        assert (status, said) == (200, {"run": "Run", "result": "tea"})
        assert [one.call.name for one in exchange.entries] == ["order"]


@asynccontextmanager
async def silent() -> AsyncIterator[str]:
    """Yield an address where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{free.getsockname()[1]}/runs/{RUN}"


@asynccontextmanager
async def broken() -> AsyncIterator[str]:
    """Yield an address of a gateway that fails."""
    async with Origin() as origin:
        origin.script(*[Reply([b"{}"], status=500)] * 2)
        yield f"{origin.url}/runs/{RUN}"


@asynccontextmanager
async def something_else() -> AsyncIterator[str]:
    """Yield an address of a server that is no gateway."""
    async with Origin() as origin:
        origin.script(*[Reply([b"<html>"])] * 2)
        yield f"{origin.url}/runs/{RUN}"


@pytest.mark.parametrize("where", [silent, broken, something_else])
async def test_where_no_gateway_answers_reads_are_made_and_writes_are_not(
    environment: pytest.MonkeyPatch, where: Any
) -> None:
    """A read changes nothing; a write may have been made by another stack."""
    environment.setenv("CUTOVER_GATEWAY", "")
    async with where() as gateway:
        assert await asyncio.to_thread(_ask, "/orders", gateway) == "GatewayUnreachable"
        assert outside == {}
    async with where() as gateway:
        assert await asyncio.to_thread(_ask, "/reads", gateway) == [7, 8]
        assert outside == {"count": 1, "count.now": 1}


def _ask(path: str, gateway: str) -> Any:
    """Ask on a loop of its own, which may be blocked."""
    return asyncio.run(get(path, gateway=gateway))[1]["result"]


async def test_a_lost_report_is_sent_once_more() -> None:
    """The write stays what it was for the service's own caller, whatever becomes of the report."""
    async with Origin() as origin:
        origin.script(
            Reply([b'{"perform": 3}']), Reply(before="reset"), Reply([b"{}"]), Reply([b"{}"])
        )
        status, said = await get("/orders", gateway=f"{origin.url}/runs/{RUN}")
        assert (status, said["result"]) == (200, "tea")
        question, lost, report = origin.asked
    assert question.target == f"/runs/{RUN}/effects"
    assert msgspec.json.decode(question.body)["canonical"] == '{"item":"tea"}'
    assert (lost.target, lost.body) == (report.target, report.body)
    assert report.target == f"/runs/{RUN}/effects/3"
    assert msgspec.json.decode(report.body) == {"items": ["tea"]}


async def test_a_refusal_ends_the_run_in_the_service() -> None:
    """What it calls afterwards is refused without being asked for."""
    async with Origin() as origin:
        refused = b'{"refused": "write_differs", "subject": "order"}'
        origin.script(Reply([refused], status=409))
        with pytest.raises(Exception, match="'order' is on the tape with other arguments"):
            await get("/orders", gateway=f"{origin.url}/runs/{RUN}")
        assert len(origin.asked) == 1


ANSWER = (
    b'{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}'
)


@pytest.mark.parametrize("blocking", [False, True])
async def test_requests_to_models_go_through_the_gateway(
    environment: pytest.MonkeyPatch, blocking: bool
) -> None:
    """With the address they are meant for, and the gateway's key; others stay the service's."""
    environment.setenv("CUTOVER_GATEWAY_KEY", "secret")
    asked: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    url = "https://models.example:444/base/v1"

    async def chat(_scope: Any, _receive: Any, send: Any) -> None:
        if blocking:
            http = httpx2.Client(transport=TapeTransport())
            with OpenAI(base_url=url, api_key="sk", http_client=http) as model:
                said = await asyncio.to_thread(lambda: model.chat.completions.create(**asked))
        else:
            http_async = httpx2.AsyncClient(transport=TapeTransport())
            async with AsyncOpenAI(base_url=url, api_key="sk", http_client=http_async) as client:
                said = await client.chat.completions.create(**asked)
        text = said.choices[0].message.content or ""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": text.encode()})

    async with Origin() as origin:
        origin.script(Reply([ANSWER]))
        transport = httpx.ASGITransport(app=TapeMiddleware(chat))
        said = {"x-cutover-gateway": f"{origin.url}/runs/{RUN}", "x-cutover-key": "secret"}
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            answer = await client.get("/", headers=said)
        assert answer.text == "hello"
        (request,) = origin.asked
    assert request.target == f"/runs/{RUN}/base/v1/chat/completions"
    assert request.headers["x-cutover-target"] == "https://models.example:444"
    assert request.headers["x-cutover-key"] == "secret"
    assert request.headers["host"] == origin.url.removeprefix("http://")
    assert request.headers["authorization"] == "Bearer sk"
    assert msgspec.json.decode(request.body) == asked


@pytest.fixture
def shop() -> flask.Flask:
    """An application of WSGI: it orders while it streams."""
    app = flask.Flask(__name__)
    closed: list[bool] = []
    app.config["closed"] = closed

    @app.get("/")
    def get() -> Any:
        first = count_now()

        def body() -> Iterator[str]:
            try:
                yield f"{type(current_run()).__name__} {first} "
                yield f"{count_now()}"
            finally:
                closed.append(True)

        return flask.Response(body())

    app.wsgi_app = TapeWsgiMiddleware(app.wsgi_app)  # type: ignore[method-assign]
    return app


async def test_applications_of_wsgi_have_their_own(
    environment: pytest.MonkeyPatch, shop: flask.Flask
) -> None:
    """Calls are on the tape before and within the body, and its generator is closed."""
    environment.setenv("CUTOVER_GATEWAY", "")

    def get(gateway: str = "") -> tuple[int, str]:
        headers = {"x-cutover-gateway": gateway} if gateway else {}
        answer = shop.test_client().get("/", headers=headers)
        return answer.status_code, answer.text

    assert await asyncio.to_thread(get) == (200, "NoneType 8 8")
    assert (await asyncio.to_thread(get, "http://evil.example/"))[0] == 403
    async with Origin() as origin:
        origin.script(Reply([b'{"items": [1]}']), Reply([b'{"perform": 0}']), Reply([b"{}"]))
        status, text = await asyncio.to_thread(get, f"{origin.url}/runs/{RUN}")
        assert (status, text) == (200, f"{RemoteRun.__name__} 1 8")
        assert msgspec.json.decode(origin.asked[2].body) == {"items": [8]}
    assert shop.config["closed"] == [True, True]
