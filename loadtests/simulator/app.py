"""The provider as an ASGI application; no framework, because it shares cores with what it feeds."""

import hmac
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs

import msgspec
from starlette.types import Receive, Scope, Send

from loadtests.simulator import embeddings
from loadtests.simulator.ledger import Ledger
from loadtests.simulator.models import catalogue, known
from loadtests.simulator.plan import plan, refused
from loadtests.simulator.playing import play
from loadtests.simulator.profile import Profile, overridden
from loadtests.simulator.refusal import Refusal
from loadtests.simulator.request import ChatCompletionRequest, decode, digest_of
from loadtests.simulator.script import JSON, Chunk, Script

CACHED_SCRIPTS = 4_096
CACHED_BODY = 64 * 1024
MAX_BODY = 16 * 1024 * 1024
UNPLANNED = "-"

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


class Order(msgspec.Struct, frozen=True):
    """A chat request that can be planned."""

    request: ChatCompletionRequest
    profile: Profile
    digest: str

    @property
    def name(self) -> str:
        """The model's name without overrides."""
        return self.request.model_name


class Simulator:
    """OpenAI's chat, embeddings and models endpoints, and `/sim/…` to look inside."""

    def __init__(self, profile: Profile | None = None, api_key: str | None = None) -> None:
        self.ledger = Ledger()
        self._profile = profile or Profile()
        self._expected = None if api_key is None else f"Bearer {api_key}".encode()
        # Load comes in equal requests; keyed by the body itself, nothing is decoded twice.
        self._order = lru_cache(CACHED_SCRIPTS)(self._read_order)
        self._script = lru_cache(CACHED_SCRIPTS)(self._planned)
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
            await _refuse(send, Refusal(401, "Incorrect API key provided.", code="invalid_api_key"))
        else:
            await handler(scope, receive, send)

    def _admitted(self, scope: Scope) -> bool:
        if self._expected is None or scope["path"].startswith("/sim/"):
            return True
        given = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(given, self._expected)

    async def _chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        if isinstance(body, Refusal):
            await _refuse(send, body)
            return
        cached = len(body) <= CACHED_BODY
        order = self._order(body) if cached else self._read_order(body)
        if isinstance(order, Refusal):
            await _refuse(send, order)
            return
        spent = 0 < order.profile.times <= self.ledger.attempts(order.digest)
        script = self._script(body, spent) if cached else self._planned(body, spent=spent)
        record = self.ledger.open(order.digest, order.name, stream=bool(order.request.stream))
        line = scope["state"]["line"]
        end = "cancelled"
        try:
            end = await play(script, record, line, receive, send)
        finally:
            self.ledger.close(record, end, line.lost_ns)

    def _read_order(self, body: bytes) -> Order | Refusal:
        request = decode(body)
        if isinstance(request, Refusal):
            return request
        if not known(request.model_name):
            return Refusal(404, f"The model {request.model!r} does not exist.", "model_not_found")
        profile = overridden(self._profile, request.model)
        if isinstance(profile, Refusal):
            return profile
        return Order(request, profile, digest_of(request).hex())
