"""A service that breaks where a request's id tells it to; model and tool are on the tape."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from openai import AsyncOpenAI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from cutover import TapeTransport, effect
from cutover.tape.remote import TapeMiddleware
from tests.support.breaking import break_down, breaks

ordered: Counter[int] = Counter()
"""How often each order was made, by all services of this process."""

KINDS = ("crash", "hang", "status", "says")
"""Breaks its connection; says nothing more; answers 500; reports a failure in its stream."""
PARAMETERS = {"type": "object", "properties": {"number": {"type": "integer"}}}
TOOLS: Any = [{"type": "function", "function": {"name": "order", "parameters": PARAMETERS}}]


@effect("orders.create", writes=True)
async def order(number: int) -> str:
    """Make an order."""
    ordered[number] += 1
    return f"ordered {number}"


async def said(model: AsyncOpenAI, message: str) -> AsyncIterator[str]:
    """Yield what the model says, and perform what it asks for in between."""
    messages: Any = [{"role": "user", "content": message}]
    while True:
        chunks = await model.chat.completions.create(
            model="sim-chat", messages=messages, tools=TOOLS, stream=True
        )
        name, arguments = "", ""
        async for chunk in chunks:
            delta = chunk.choices[0].delta if chunk.choices else None
            if delta is not None and delta.content:
                yield delta.content
            for piece in (delta.tool_calls if delta is not None else None) or []:
                name = piece.id or name
                arguments += (piece.function and piece.function.arguments) or ""
        if not name:
            return
        call = {"id": name, "type": "function"}
        called = {**call, "function": {"name": "order", "arguments": arguments}}
        result = await order(**json.loads(arguments))
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [called]},
            {"role": "tool", "tool_call_id": name, "content": result},
        ]


def event(delta: dict[str, str], finish: str | None = None) -> str:
    """Return a chunk of a chat completion as a server-sent event."""
    chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return f"data: {json.dumps(chunk)}\n\n"


def shop(name: str, base_url: str) -> Callable[..., Any]:
    """Return the service that is the stack `name`, with a model at `base_url`."""
    model = AsyncOpenAI(
        base_url=base_url,
        api_key="none",
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=TapeTransport(), timeout=60),
    )

    async def chat(request: Request) -> Response:
        body = await request.json()
        kind, after = breaks(body["id"]).get(name, ("", -1))
        if kind == "status":
            return Response("broken", 500)

        async def stream() -> AsyncIterator[str]:
            count = 0
            async for piece in said(model, body["message"]):
                if count == after:
                    if kind == "says":
                        yield f"data: {json.dumps({'error': {'message': 'broken'}})}\n\n"
                        return
                    await break_down(kind)
                yield event({"content": piece})
                count += 1
            yield event({}, "stop") + "data: [DONE]\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await model.close()

    return TapeMiddleware(
        Starlette(routes=[Route("/ask", chat, methods=["POST"])], lifespan=lifespan)
    )
