"""An endpoint of embeddings on loopback: says what a test wants it to say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from effects.memory.embeddings import EndpointEmbedder
from effects.memory.fake import HashedEmbedder
from effects.model import Limits, ModelEntry, Provider, Secret
from tests.support.asgi import served
from tests.support.patience import PATIENCE_S

Answer = Callable[[bytes], Awaitable[Response]]
KEY = "sk-embedding-key"


@dataclass(frozen=True, slots=True)
class Noted:
    """What the endpoint was asked, and the seconds the embedder would have waited."""

    requests: list[Request] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)


def asked(answer: Answer, requests: list[Request]) -> ASGIApp:
    """Make an application that notes what it is asked."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        requests.append(request)
        response = await answer(await request.body())
        await response(scope, receive, send)

    return app


def hashing(dimensions: int = 64) -> Answer:
    """Answer as a model would, the last vector first: order is told by the index."""
    embedder = HashedEmbedder(dimensions)

    async def answer(body: bytes) -> Response:
        vectors = await embedder.embed(msgspec.json.decode(body)["input"])
        data = [
            {"object": "embedding", "index": index, "embedding": [2 * x for x in row.tolist()]}
            for index, row in enumerate(vectors)
        ]
        return Response(msgspec.json.encode({"object": "list", "data": data[::-1]}))

    return answer


def saying(status: int, body: bytes, **headers: str) -> Answer:
    """Answer everything alike."""

    async def answer(_: bytes) -> Response:
        return Response(body, status, headers)

    return answer


def in_turn(*answers: Answer) -> Answer:
    """Give each answer once, the last one from then on."""
    left = list(answers)

    async def answer(body: bytes) -> Response:
        return await (left.pop(0) if len(left) > 1 else left[0])(body)

    return answer


@asynccontextmanager
async def endpoint(
    answer: Answer,
    noted: Noted | None = None,
    *,
    dimensions: int = 64,
    shortened: bool = False,
    total: float = PATIENCE_S,
) -> AsyncIterator[EndpointEmbedder]:
    """Open an embedder on an endpoint that answers so; it waits no time at all."""
    noted = noted or Noted()
    async with served(asked(answer, noted.requests)) as url:
        provider = Provider("test", f"{url}/v1", Secret(KEY), Limits(total=total))

        async def sleep(seconds: float) -> None:
            noted.waits.append(seconds)

        embedder = EndpointEmbedder(
            ModelEntry("e", provider, "small"),
            dimensions,
            shortened=shortened,
            draw=lambda: 1.0,
            sleep=sleep,
        )
        try:
            yield embedder
        finally:
            await embedder.aclose()
