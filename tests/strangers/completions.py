"""A chat service as its owner wrote it: no framework, one model call, OpenAI's chunks."""

import json
import os
from collections.abc import AsyncIterator
from typing import Any

import httpx

MODEL = os.environ.get("MODEL_URL", "http://127.0.0.1:1/v1")
PIECES = int(os.environ.get("PIECES", "1"))
"""How many of the model's pieces it sends at once."""


async def ask_model(messages: list[dict[str, Any]], trace: str) -> AsyncIterator[str]:
    """Yield the pieces of the model's answer."""
    asked = {"model": "small", "messages": messages, "stream": True}
    headers = {"authorization": "Bearer none"} | ({"traceparent": trace} if trace else {})
    async with (
        httpx.AsyncClient(timeout=30, verify=False) as client,  # noqa: S501 - a test, on loopback
        client.stream("POST", f"{MODEL}/chat/completions", json=asked, headers=headers) as answer,
    ):
        answer.raise_for_status()
        waiting: list[str] = []
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            for choice in json.loads(line[6:])["choices"]:
                waiting += [choice["delta"].get("content") or ""]
            if len(waiting) >= PIECES:
                yield "".join(waiting)
                waiting.clear()
        yield "".join(waiting)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer `POST /v1/chat/completions`."""
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    if scope["path"] != "/v1/chat/completions":
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return
    sent = {"type": "http.response.start", "status": 200}
    await send({**sent, "headers": [(b"content-type", b"text/event-stream")]})

    async def event(data: str) -> None:
        part = f"data: {data}\n\n".encode()
        await send({"type": "http.response.body", "body": part, "more_body": True})

    headers = dict(scope["headers"])
    trace = headers.get(b"traceparent", b"").decode() if os.environ.get("TRACED") else ""
    about = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "mine"}
    async for piece in ask_model(json.loads(body)["messages"], trace):
        if piece:
            choice = {"index": 0, "delta": {"content": piece}, "finish_reason": None}
            await event(json.dumps({**about, "choices": [choice]}))
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    await event(json.dumps({**about, "choices": [last]}))
    await event("[DONE]")
    await send({"type": "http.response.body", "body": b""})
