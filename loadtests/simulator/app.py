"""The provider as an ASGI application; no framework, because it shares cores with what it feeds.

| endpoint | |
|---|---|
| `POST /v1/chat/completions` | streamed or not |
| `POST /v1/embeddings` | floats or base64 |
| `GET /v1/models` | |
| `GET /sim/counts` | requests and their outcomes (`ledger.py`) |
| `GET /sim/requests?since=N` | up to 1 000 records from number N on |
| `POST /sim/reset` | forget both |

Load comes in equal requests: bodies are the keys of a cache, so that none is decoded twice.
"""

import hmac
from collections.abc import Awaitable, Callable
from functools import lru_cache
from urllib.parse import parse_qs

import msgspec
from starlette.types import Receive, Scope, Send

from loadtests.simulator import embeddings
from loadtests.simulator.ledger import End, RequestLedger
from loadtests.simulator.player import play_script
from loadtests.simulator.profile import Complete, Profile, overridden
from loadtests.simulator.request import ChatCompletionRequest, Refusal, decode, digest_of
from loadtests.simulator.script import AnswerScript, script_for

CHAT_MODELS = ("sim-chat", "gpt-4.1", "gpt-4.1-mini", "gpt-4o", "gpt-4o-mini", "deepseek-reasoner")
EMBEDDING_MODELS = ("sim-embed", "text-embedding-3-small", "text-embedding-3-large")
ANY_MODEL = "sim-"
CREATED = 1_750_000_000


REMEMBERED = 4_096
LARGEST_REMEMBERED = 64 * 1024
MAX_BODY = 16 * 1024 * 1024


def is_known_model(name: str) -> bool:
    """Whether a model is on offer: those listed, and whatever begins with `sim-`."""
    return name.startswith(ANY_MODEL) or name in CHAT_MODELS or name in EMBEDDING_MODELS


def catalogue() -> bytes:
    """List the models as OpenAI does."""
    data = [
        {"id": name, "object": "model", "created": CREATED, "owned_by": "simulator"}
        for name in CHAT_MODELS + EMBEDDING_MODELS
    ]
    return msgspec.json.encode({"object": "list", "data": data})


class PlannedRequest(msgspec.Struct, frozen=True):
    """A chat request that can be planned; the digest is hexadecimal."""

    request: ChatCompletionRequest
    profile: Profile
    digest: str
    scripts: dict[bool, AnswerScript]

    def script(self, *, spent: bool) -> AnswerScript:
        """Plan the answer, once; when its faults are `spent`, a request is answered whole."""
        script = self.scripts.get(spent)
        if script is None:
            ending = Complete() if spent else self.profile.ending
            script = script_for(self.request, msgspec.structs.replace(self.profile, ending=ending))
            self.scripts[spent] = script
        return script


class RequestReader:
    """Reads chat requests; bodies are the keys of a cache, so that none is decoded twice."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._cached = lru_cache(REMEMBERED)(self._read)

    def read(self, body: bytes) -> PlannedRequest | Refusal:
        """Read a request body: 400, 404 or 422 when it cannot be answered."""
        return self._cached(body) if len(body) <= LARGEST_REMEMBERED else self._read(body)

    def _read(self, body: bytes) -> PlannedRequest | Refusal:
        request = decode(body)
        if isinstance(request, Refusal):
            return request
        if not is_known_model(request.model_name):
            return Refusal(404, f"The model {request.model!r} does not exist.", "model_not_found")
        profile = overridden(self._profile, request.model)
        if isinstance(profile, Refusal):
            return profile
        return PlannedRequest(request, profile, digest_of(request).hex(), {})


Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


class Simulator:
    """An OpenAI-compatible provider; with an `api_key`, clients must send it."""

    def __init__(self, profile: Profile | None = None, api_key: str | None = None) -> None:
        self.ledger = RequestLedger()
        self._reader = RequestReader(profile or Profile())
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
        sent = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(sent, self._expected)

    async def _chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        planned = body if isinstance(body, Refusal) else self._reader.read(body)
        if isinstance(planned, Refusal):
            await _refuse(send, planned)
            return
        spent = 0 < planned.profile.times <= self.ledger.attempts(planned.digest)
        request = planned.request
        record = self.ledger.open(planned.digest, request.model_name, stream=bool(request.stream))
        connection = scope["state"]["connection"]
        end: End = "cut"  # unless it comes to its end
        try:
            end = await play_script(planned.script(spent=spent), record, connection, receive, send)
        finally:
            self.ledger.close(record, end, connection.lost_ns)

    async def _embeddings(self, _: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        request = body if isinstance(body, Refusal) else embeddings.decode(body)
        if isinstance(request, Refusal):
            await _refuse(send, request)
        elif not is_known_model(request.model):
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
