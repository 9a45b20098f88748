"""The provider as an ASGI application; no framework, because it shares cores with what it feeds.

| endpoint | |
|---|---|
| `POST /v1/chat/completions` | streamed or not |
| `POST /v1/embeddings` | floats or base64 |
| `GET /v1/models` | |
| `GET /sim/counts` | what was asked and what became of it (`ledger.py`) |
| `GET /sim/requests?since=N` | up to 1 000 records from number N on |
| `POST /sim/reset` | forget both |
"""

import hmac
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

import msgspec
from starlette.types import Receive, Scope, Send

from loadtests.simulator import embeddings
from loadtests.simulator.desk import Desk
from loadtests.simulator.ledger import End, Ledger
from loadtests.simulator.models import catalogue, known
from loadtests.simulator.playing import play
from loadtests.simulator.profile import Profile
from loadtests.simulator.refusal import Refusal

MAX_BODY = 16 * 1024 * 1024

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


class Simulator:
    """An OpenAI-compatible provider; `api_key` is required of clients when given."""

    def __init__(self, profile: Profile | None = None, api_key: str | None = None) -> None:
        self.ledger = Ledger()
        self._desk = Desk(profile or Profile())
        self._expected = None if api_key is None else f"Bearer {api_key}".encode()
        self._routes: dict[str, tuple[str, Handler]] = {
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/embeddings": ("POST", self._embeddings),
            "/v1/models": ("GET", self._models),
            "/sim/counts": ("GET", self._counts),
            "/sim/requests": ("GET", self._requests),
            "/sim/reset": ("POST", self._reset),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        method, handler = self._routes.get(scope["path"], ("", None))
        if handler is None:
            await _refuse(send, Refusal(404, f"Unknown path: {scope['path']!r}."))
        elif scope["method"] != method:
            await _refuse(send, Refusal(405, f"Only {method} is allowed here."))
        elif not self._admitted(scope):
            await _refuse(send, Refusal(401, "Incorrect API key provided.", "invalid_api_key"))
        else:
            await handler(scope, receive, send)

    def _admitted(self, scope: Scope) -> bool:
        if self._expected is None or scope["path"].startswith("/sim/"):
            return True
        given = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(given, self._expected)

    async def _chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        order = body if isinstance(body, Refusal) else self._desk.order(body)
        if isinstance(order, Refusal):
            await _refuse(send, order)
            return
        spent = 0 < order.profile.times <= self.ledger.attempts(order.digest)
        request = order.request
        record = self.ledger.open(order.digest, request.model_name, stream=bool(request.stream))
        line = scope["state"]["line"]
        end: End = "cut"  # unless it comes to its end
        try:
            end = await play(order.script(spent=spent), record, line, receive, send)
        finally:
            self.ledger.close(record, end, line.lost_ns)

    async def _embeddings(self, _: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        request = body if isinstance(body, Refusal) else embeddings.decode(body)
        if isinstance(request, Refusal):
            await _refuse(send, request)
        elif not known(request.model):
            message = f"The model {request.model!r} does not exist."
            await _refuse(send, Refusal(404, message, "model_not_found"))
        else:
            await _reply(send, embeddings.embed(request))

    async def _models(self, _: Scope, __: Receive, send: Send) -> None:
        await _reply(send, catalogue())

    async def _counts(self, _: Scope, __: Receive, send: Send) -> None:
        await _reply(send, msgspec.json.encode(self.ledger.counts()))

    async def _requests(self, scope: Scope, _: Receive, send: Send) -> None:
        since = parse_qs(scope["query_string"].decode()).get("since", ["0"])[0]
        if since.isdecimal():
            await _reply(send, msgspec.json.encode(self.ledger.page(int(since))))
        else:
            await _refuse(send, Refusal(400, f"{since!r} is not a number.", param="since"))

    async def _reset(self, _: Scope, __: Receive, send: Send) -> None:
        self.ledger.reset()
        await _reply(send, b"{}")


async def _body(receive: Receive) -> bytes | Refusal:
    """Read the whole body; 413 as soon as it is too long."""
    body = b""
    while True:
        message = await receive()
        part: bytes = message.get("body", b"")
        body += part
        if len(body) > MAX_BODY:
            return Refusal(413, f"A request body has at most {MAX_BODY} bytes.")
        if not message.get("more_body"):
            return body


async def _refuse(send: Send, refusal: Refusal) -> None:
    # A body that was not read to its end must not be taken for the next request.
    headers = (*refusal.headers, (b"connection", b"close"))
    await _reply(send, refusal.body, refusal.status, headers)


async def _reply(
    send: Send, body: bytes, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    described = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": described})
    await send({"type": "http.response.body", "body": body})
