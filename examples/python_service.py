"""A shop's chat on Python: it streams what a model says, and orders with a tool.

    OPENAI_API_KEY=sk-... uvicorn examples.python_service:app --port 8001

It is a service as anyone writes it, but for three lines: the transport of the SDK, the decorator of
the tool, and the middleware. Behind the router its calls go on the tape of the run that a request's
headers name; without the router nothing changes.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from openai import AsyncOpenAI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from cutover import TapeTransport, effect
from cutover.tape.remote import TapeMiddleware

MODEL = os.environ.get("MODEL", "gpt-4.1-mini")
PARAMETERS = {
    "type": "object",
    "properties": {"item": {"type": "string"}, "grams": {"type": "integer"}},
    "required": ["item", "grams"],
}
TOOLS: Any = [{"type": "function", "function": {"name": "create_order", "parameters": PARAMETERS}}]
orders: list[dict[str, Any]] = []

client = AsyncOpenAI(http_client=httpx2.AsyncClient(transport=TapeTransport()))


@effect("orders.create", writes=True)
async def create_order(item: str, grams: int) -> str:
    """Order tea; return the order's number."""
    orders.append({"item": item, "grams": grams})
    return f"Order {len(orders)}"


async def chat(message: str) -> AsyncIterator[str]:
    """Yield what the model says, and perform what it asks for in between."""
    messages: Any = [
        {"role": "system", "content": "You sell tea."},
        {"role": "user", "content": message},
    ]
    while True:
        chunks = await client.chat.completions.create(
            model=MODEL, messages=messages, tools=TOOLS, stream=True
        )
        said, calls = "", list[dict[str, Any]]()
        async for chunk in chunks:
            delta = chunk.choices[0].delta if chunk.choices else None
            if delta is None:
                continue
            if delta.content:
                said += delta.content
                yield delta.content
            for piece in delta.tool_calls or []:
                if piece.index == len(calls):
                    calls.append(piece.model_dump(exclude={"index"}))
                elif piece.function:
                    calls[piece.index]["function"]["arguments"] += piece.function.arguments or ""
        if not calls:
            return
        messages.append({"role": "assistant", "content": said, "tool_calls": calls})
        for call in calls:
            result = await create_order(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def event(delta: dict[str, str], finish_reason: str | None = None) -> str:
    """Return a chunk of a chat completion as a server-sent event."""
    chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}
    return f"data: {json.dumps(chunk)}\n\n"


async def post_chat(request: Request) -> StreamingResponse:
    """Answer `POST /chat`."""
    message = (await request.json())["message"]

    async def body() -> AsyncIterator[str]:
        async for piece in chat(message):
            yield event({"content": piece})
        yield event({}, "stop") + "data: [DONE]\n\n"

    return StreamingResponse(body(), media_type="text/event-stream")


async def get_orders(_: Request) -> JSONResponse:
    """Answer `GET /orders`."""
    return JSONResponse(orders)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    """Close the connections when the server stops."""
    yield
    await client.close()


routes = [Route("/chat", post_chat, methods=["POST"]), Route("/orders", get_orders)]
app = TapeMiddleware(Starlette(routes=routes, lifespan=lifespan))
